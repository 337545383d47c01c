/* The side panel: all facts of the token that is chosen, with links to the records that show them. */

const digits = (value, places) => (Number.isNaN(value) ? null : value.toFixed(places));
const percent = logprob => `${(100 * Math.exp(logprob)).toPrecision(3)} %`;
const counted = number => number.toLocaleString("en");

export class Facts {
  /* `recordUrl`: address of a record's page, to which its place on the log is added. */
  constructor(element, recordUrl) {
    this.element = element;
    this._recordUrl = recordUrl;
  }

  show(session, place) {
    const facts = session.facts(place);
    const { reason } = facts;
    const rows = [
      ["token", `${counted(place + 1)} of ${counted(session.size)}`],
      ["id", String(facts.id)],
      ["why", reason.words, "tk-why"],
      ["rule", reason.rule],
      ["shown by", this._link(reason.place, reason.record)],
      ["to change it", reason.setting],
      ["log-prob, engine", logprobText(facts.logprob)],
      ["log-prob, trainer", Number.isNaN(facts.logprob) ? null : "not kept by token", "tk-faint"],
      ["advantage", digits(facts.advantage, 4) ?? notKept(reason)],
      ["temperature", digits(facts.temperature, 2)],
      ["policy version", facts.version],
      ["worker", facts.worker],
      ["brought by", this._link(facts.event)],
      ["loss mask", facts.node && facts.version ? (facts.mask ? "may be trained" : "masked") : null],
      ["turn", facts.turn && `${facts.turn.number}, token ${facts.offset + 1} of ${turnPart(facts)}`],
      ["turn id", facts.turn?.turn],
      ["session", session.twin.session],
    ];
    const list = document.createElement("dl");
    for (const [name, value, css] of rows) if (value) list.append(...pair(name, value, css));
    const head = document.createElement("p");
    head.className = `tk-token t why-${reason.kind}`;
    head.textContent = facts.text === "" ? "(part of a character)" : visible(facts.text);
    this.element.replaceChildren(head, list);
  }

  _link(place, name = "") {
    if (!place) return null;
    const link = document.createElement("a");
    link.href = this._recordUrl + encodeURIComponent(place);
    link.textContent = name ? `${name} at ${place}` : place;
    return link;
  }
}

/* A token's text with a sign for what cannot be seen. */
export function visible(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ | $/g, "␣");
}

function logprobText(value) {
  return Number.isNaN(value) ? null : `${value.toFixed(6)} (${percent(value)})`;
}

function notKept(reason) {
  return reason.kind === "trained" ? "not here: the step's file in trained/ has it" : null;
}

function turnPart({ node, turn }) {
  return node.node === turn.node ? `its answer's ${counted(node.length)}` : `the ${counted(node.length)} that its prompt adds`;
}

function pair(name, value, css = "") {
  const term = document.createElement("dt");
  term.textContent = name;
  const description = document.createElement("dd");
  description.className = css;
  description.append(value);
  return [term, description];
}
