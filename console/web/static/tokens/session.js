/* A session's tokens in memory: ranges that were fetched, the oldest forgotten. */

export const PAGE = 8192;
const PAGES_KEPT = 40;
const UNKNOWN = -1;

const numbers = values => Float32Array.from(values, value => (value === null ? NaN : value));

export class Session {
  /* `twin`: the page of its JSON; `rangeUrl`: address of ranges, to which from and to are added. */
  constructor(twin, rangeUrl) {
    this.twin = twin;
    this.size = twin.tokens;
    this.messages = new Map();
    this._rangeUrl = rangeUrl;
    this._pages = new Map();
    this._nodes = new Map(twin.nodes.map(node => [node.node, node]));
    this._turns = new Map(twin.turns.map(turn => [turn.turn, turn]));
  }

  static async load(twinUrl, rangeUrl) {
    return new Session((await fetched(twinUrl)).page, rangeUrl);
  }

  node(number) { return this._nodes.get(number); }

  turn(name) { return this._turns.get(name); }

  /* Return once all tokens of the range are in memory. */
  async need(begin, end) {
    const wanted = [];
    for (let page = Math.floor(begin / PAGE); page * PAGE < end; page++) wanted.push(this._page(page));
    await Promise.all(wanted);
  }

  has(place) { return this._pages.get(Math.floor(place / PAGE))?.columns !== undefined; }

  text(place) {
    const { columns, at } = this._find(place);
    const joined = columns.joined.get(at);
    return joined === undefined ? columns.texts.get(columns.ids[at]) ?? "" : joined;
  }

  /* A number of a column: reasons, versions, workers, nodes, mask, logprobs, advantages. */
  value(name, place) {
    const { columns, at } = this._find(place);
    return columns[name][at];
  }

  /* All that is known of a token, for a reader. */
  facts(place) {
    const { columns, at } = this._find(place);
    const node = this.node(columns.nodes[at]);
    return {
      place,
      id: columns.ids[at],
      text: this.text(place),
      node,
      turn: node ? this.turn(node.turn) : undefined,
      offset: node ? place - node.begin : 0,
      logprob: columns.logprobs[at],
      advantage: columns.advantages[at],
      temperature: columns.temperatures[at],
      version: versionName(columns, at, place),
      worker: this.twin.workers[columns.workers[at]] ?? "",
      mask: Boolean(columns.mask[at]),
      reason: this.twin.reasons[columns.reasons[at]],
      event: lastBefore(columns.events, place),
    };
  }

  _find(place) {
    const number = Math.floor(place / PAGE);
    const page = this._pages.get(number);
    if (page?.columns === undefined) throw new Error(`token ${place} is not in memory`);
    return { columns: page.columns, at: place - number * PAGE };
  }

  _page(number) {
    let page = this._pages.get(number);
    if (page !== undefined) {
      this._pages.delete(number); // set again behind all others: it was used last
    } else {
      page = { loading: this._fetch(number) };
      page.loading.then(columns => { page.columns = columns; }, () => this._pages.delete(number));
    }
    this._pages.set(number, page);
    for (const old of this._pages.keys()) {
      if (this._pages.size <= PAGES_KEPT) break;
      this._pages.delete(old);
    }
    return page.loading;
  }

  async _fetch(number) {
    const url = new URL(this._rangeUrl, document.baseURI);
    url.searchParams.set("from", number * PAGE);
    url.searchParams.set("to", Math.min(this.size, (number + 1) * PAGE));
    const range = (await fetched(url)).page;
    for (const turn of range.messages) this.messages.set(turn.turn, turn.messages);
    return columnsOf(range);
  }
}

function columnsOf(range) {
  const joined = new Map();
  for (const [first, count, text] of range.texts.joined) {
    joined.set(first, text);
    for (let at = first + 1; at < first + count; at++) joined.set(at, "");
  }
  return {
    ids: Int32Array.from(range.ids),
    texts: new Map(range.texts.ids.map((id, place) => [id, range.texts.texts[place]])),
    joined,
    logprobs: numbers(range.logprobs),
    advantages: numbers(range.advantages),
    temperatures: numbers(range.temperatures),
    versions: Int32Array.from(range.versions),
    inexact: range.inexact,
    workers: Int32Array.from(range.workers),
    nodes: Int32Array.from(range.nodes),
    mask: Uint8Array.from(range.mask),
    reasons: Int32Array.from(range.reasons),
    events: range.events,
  };
}

function versionName(columns, at, place) {
  const version = columns.versions[at];
  if (version >= 0) return String(version);
  if (version !== UNKNOWN) return "";
  const span = columns.inexact.filter(([start]) => start <= place).pop();
  return span ? `between ${span[1]} and ${span[2]}` : "not known exactly";
}

/* Place on the log of the event that brought a token. */
function lastBefore({ begins, places }, place) {
  let low = 0, high = begins.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (begins[middle] <= place) low = middle + 1; else high = middle;
  }
  return low ? places[low - 1] : "";
}

async function fetched(url) {
  const answer = await fetch(url, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}: ${url}`);
  return answer.json();
}
