/* The flow: all tokens as text, of which only what is near the view is in the document.

   Chunks of one node have a place holder each, with the height that they had or probably will have.
   A browser keeps the view where it is while heights above it change. */

const CHUNK = 512;
const LINE_PX = 22;
const LETTER_PX = 7.6;
const LETTERS = 4.4;
const NEAR = "1200px 0px";

export class Flow {
  constructor(session, choose, moved) {
    this._session = session;
    this._choose = choose;
    this._moved = moved;
    this.chosen = -1;
    this.element = document.createElement("div");
    this.element.className = "tk-flow";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "application");
    this.element.setAttribute("aria-label", `Tokens of session ${session.twin.session}: arrows choose a token, n and p a turn`);
    this.element.addEventListener("click", event => this._click(event));
    this.element.addEventListener("keydown", event => this._key(event));
    this.element.addEventListener("scroll", () => this._scrolled(), { passive: true });
  }

  /* Make the place holders; call once the element is in the document. */
  begin() {
    this._chunks = chunksOf(this._session.twin.nodes);
    this._observer = new IntersectionObserver(entries => this._seen(entries), { root: this.element, rootMargin: NEAR });
    const perLine = Math.max(4, this.element.clientWidth * 0.6 / (LETTER_PX * LETTERS));
    for (const chunk of this._chunks) {
      chunk.element = document.createElement("div");
      chunk.element.className = "tk-chunk";
      chunk.height = Math.ceil((chunk.end - chunk.begin) / perLine) * LINE_PX + (chunk.first ? 40 : 0);
      chunk.element.style.height = `${chunk.height}px`;
      chunk.element.chunk = chunk;
      this._observer.observe(chunk.element);
    }
    this.element.append(...this._chunks.map(chunk => chunk.element));
  }

  colourBy(colouring) {
    this._colouring = colouring;
    for (const chunk of this._chunks) if (chunk.filled) this._colour(chunk);
  }

  /* Choose a token and bring it into view. */
  async go(place) {
    const chunk = this._chunkOf(place);
    if (!chunk) return;
    await this._fill(chunk);
    this._mark(place);
    this._span(place)?.scrollIntoView({ block: "nearest" });
  }

  _seen(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this._fill(target.chunk); else this._empty(target.chunk);
    }
  }

  async _fill(chunk) {
    chunk.wanted = true;
    if (chunk.filled) return;
    await this._session.need(chunk.begin, chunk.end);
    if (chunk.filled || !chunk.wanted) return;
    chunk.filled = true;
    const text = document.createElement("p");
    text.className = "tk-text";
    for (let place = chunk.begin; place < chunk.end; place++) text.append(this._token(place));
    chunk.text = text;
    chunk.element.replaceChildren(...(chunk.first ? [this._head(chunk)] : []), this._messages(chunk), text);
    chunk.element.style.height = "";
    this._colour(chunk);
    this._handOvers(chunk);
    this._scrolled();
  }

  _empty(chunk) {
    chunk.wanted = false;
    if (!chunk.filled) return;
    chunk.element.style.height = `${chunk.element.offsetHeight}px`;
    chunk.element.replaceChildren();
    chunk.filled = false;
  }

  _token(place) {
    const span = document.createElement("span");
    const text = this._session.text(place);
    span.textContent = text === "" ? "·" : text.replaceAll("\n", "⏎\n");
    span.dataset.place = place;
    return span;
  }

  _colour(chunk) {
    for (const span of chunk.text.children) {
      const place = Number(span.dataset.place);
      if (Number.isNaN(place)) continue;
      span.className = `t ${this._colouring.classOf(column => this._session.value(column, place))}`;
    }
    if (this.chosen >= chunk.begin && this.chosen < chunk.end) this._span(this.chosen)?.classList.add("tk-chosen");
  }

  /* Name the worker in front of the first token that it sampled in an answer. */
  _handOvers(chunk) {
    const turn = this._session.turn(chunk.node.turn);
    if (!turn || turn.node !== chunk.node.node) return;
    for (const part of turn.stretches.slice(1)) {
      if (part.begin < chunk.begin || part.begin >= chunk.end) continue;
      const mark = document.createElement("b");
      mark.className = "tk-hand-over";
      mark.textContent = `▸ ${part.worker}${part.versions.length ? `, version ${part.versions.join(" → ")}` : ""}`;
      mark.title = part.because;
      this._span(part.begin)?.before(mark);
    }
  }

  _head(chunk) {
    const { node } = chunk;
    const turn = this._session.turn(node.turn);
    const head = document.createElement("h2");
    const answer = turn && turn.node === node.node;
    const parts = answer ? answerParts(turn) : promptParts(node, turn);
    head.textContent = parts.filter(Boolean).join(" · ");
    head.className = answer ? "tk-answer" : "tk-prompt";
    return head;
  }

  _messages(chunk) {
    const box = document.createElement("div");
    box.className = "tk-messages";
    if (!chunk.first) return box;
    const turn = this._session.turn(chunk.node.turn);
    const all = this._session.messages.get(chunk.node.turn) ?? [];
    const answer = turn && turn.node === chunk.node.node;
    const mine = answer ? all.filter((_, place) => place === all.length - 1 && turn.finish_reason) : all.slice(0, turn?.finish_reason ? -1 : undefined);
    box.append(...mine.map(messageBox));
    return box;
  }

  _click(event) {
    const place = event.target.closest("[data-place]")?.dataset.place;
    if (place !== undefined) this._mark(Number(place));
  }

  _mark(place) {
    this._span(this.chosen)?.classList.remove("tk-chosen");
    this.chosen = place;
    this._span(place)?.classList.add("tk-chosen");
    this._choose(place);
  }

  _key(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return;
    const place = this._target(event.key);
    if (place === undefined) return;
    event.preventDefault();
    this.go(Math.max(0, Math.min(this._session.size - 1, place)));
  }

  _target(key) {
    const at = this.chosen;
    switch (key) {
      case "ArrowLeft": return at - 1;
      case "ArrowRight": return at + 1;
      case "ArrowUp": return this._line(-1);
      case "ArrowDown": return this._line(1);
      case "Home": return 0;
      case "End": return this._session.size - 1;
      case "n": return this._neighbour(1);
      case "p": return this._neighbour(-1);
    }
    return undefined;
  }

  /* The token above or below the chosen one. */
  _line(way) {
    const start = this._span(this.chosen);
    if (!start) return Math.max(0, this.chosen);
    const { left, top } = start.getBoundingClientRect();
    let best = this.chosen, distance = Infinity, line;
    for (let place = this.chosen + way, span = this._span(place); span; place += way, span = this._span(place)) {
      const box = span.getBoundingClientRect();
      if (Math.abs(box.top - top) < 2) continue;
      line ??= box.top;
      if (Math.abs(box.top - line) >= 2) break;
      if (Math.abs(box.left - left) < distance) { distance = Math.abs(box.left - left); best = place; }
    }
    return best === this.chosen ? this.chosen + way : best;
  }

  /* The first token of the next or earlier answer. */
  _neighbour(way) {
    const answers = this._session.twin.turns.filter(turn => turn.length).map(turn => this._session.node(turn.node).begin);
    return way > 0 ? answers.find(begin => begin > this.chosen) : answers.findLast(begin => begin < this.chosen);
  }

  _chunkOf(place) {
    let low = 0, high = this._chunks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this._chunks[middle].begin <= place) low = middle + 1; else high = middle;
    }
    return this._chunks[low - 1];
  }

  _span(place) {
    const chunk = place >= 0 ? this._chunkOf(place) : undefined;
    return chunk?.filled ? chunk.text.querySelector(`[data-place="${place}"]`) : null;
  }

  _scrolled() {
    if (this._waiting) return;
    this._waiting = requestAnimationFrame(() => {
      this._waiting = 0;
      const box = this.element.getBoundingClientRect();
      const seen = this._chunks.filter(chunk => {
        const { top, bottom } = chunk.element.getBoundingClientRect();
        return bottom > box.top && top < box.bottom;
      });
      if (seen.length) this._moved(seen[0].begin, seen.at(-1).end);
    });
  }
}

/* Cut each node into runs of tokens; nodes without a token have none. */
export function chunksOf(nodes) {
  return nodes.flatMap(node => {
    const count = Math.ceil(node.length / CHUNK);
    return Array.from({ length: count }, (_, number) => ({
      node,
      first: number === 0,
      begin: node.begin + number * CHUNK,
      end: node.begin + Math.min(node.length, (number + 1) * CHUNK),
    }));
  });
}

function answerParts(turn) {
  const workers = [...new Set(turn.stretches.map(part => part.worker))].join(" → ");
  const versions = [...new Set(turn.stretches.flatMap(part => part.versions))].join(" → ");
  return [
    `turn ${turn.number}: answer of ${turn.length.toLocaleString("en")} tokens`,
    turn.finish_reason || turn.state,
    workers && `on ${workers}`,
    versions && `version ${versions}`,
    turn.trained ? `${turn.trained.toLocaleString("en")} trained` : "none trained",
    !turn.delivered && "not delivered",
  ];
}

function promptParts(node, turn) {
  return [
    turn ? `turn ${turn.number}: prompt` : "prompt",
    `${node.length.toLocaleString("en")} tokens of ${node.origin}`,
    turn && `matched by ${turn.match_rule}${turn.match_detail ? ` (${turn.match_detail})` : ""}`,
    turn?.ambiguous && "ambiguous",
    node.cut && `a branch: behind ${node.parent_end} tokens of node ${node.parent}`,
  ];
}

function messageBox(message) {
  const box = document.createElement("section");
  const role = document.createElement("h3");
  role.textContent = message.role || "message";
  box.append(role);
  if (message.reasoning) box.append(paragraph(message.reasoning, "tk-reasoning"));
  if (message.text) box.append(paragraph(message.text));
  for (const [name, given] of message.calls) box.append(paragraph(`${name}(${given})`, "tk-call"));
  if (message.length > message.text.length) {
    box.append(paragraph(`… ${(message.length - message.text.length).toLocaleString("en")} characters more in its record`, "tk-faint"));
  }
  return box;
}

function paragraph(text, css = "") {
  const part = document.createElement("p");
  part.className = css;
  part.textContent = text;
  return part;
}
