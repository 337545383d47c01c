/* Tokens of sessions, coloured by a fact of each, and the reason why each was or was not trained.

   Each element with data-tokens shows a session: data-twin is the address of its page's JSON,
   data-range that of its ranges of tokens. Two of them stand side by side. The elements with the
   classes tk-colour, tk-legend and tk-facts are shared. */

import { colourings } from "./tokens/colours.js";
import { Facts } from "./tokens/facts.js";
import { Flow } from "./tokens/flow.js";
import { Session } from "./tokens/session.js";
import { Strip } from "./tokens/strip.js";
import { turnList } from "./tokens/turns.js";

const FIRST = "reason";

class Shown {
  constructor(root, session, facts) {
    this.session = session;
    this.colourings = colourings(session.twin);
    this.flow = new Flow(session, place => this._chosen(place), (begin, end) => this.strip.show(begin, end));
    this.strip = new Strip(session, place => this.flow.go(place));
    this._facts = facts;
    this._root = root;
    root.replaceChildren(this.strip.element, turnList(session, place => this.flow.go(place)), this.flow.element);
    this.flow.begin();
  }

  colourBy(name) {
    this.flow.colourBy(this.colourings[name]);
    this.strip.colourBy(this.colourings[name]);
  }

  _chosen(place) {
    this._facts.show(this.session, place);
    const address = new URL(location.href);
    address.hash = `${this._root.id}=${place}`;
    history.replaceState(null, "", address);
  }
}

async function show(root, facts) {
  try {
    return new Shown(root, await Session.load(root.dataset.twin, root.dataset.range), facts);
  } catch (error) {
    const text = document.createElement("p");
    text.className = "tk-error";
    text.setAttribute("role", "alert");
    text.textContent = `The tokens cannot be shown: ${error.message}`;
    root.replaceChildren(text);
    return null;
  }
}

function drawLegend(element, views, name) {
  const entries = new Map();
  for (const view of views) {
    for (const entry of view.colourings[name].legend) {
      const known = entries.get(entry.css + entry.name);
      entries.set(entry.css + entry.name, { ...entry, count: (known?.count ?? 0) + (entry.count ?? 0) });
    }
  }
  element.replaceChildren(...[...entries.values()].map(legendItem));
}

function legendItem({ css, name, about, count }) {
  const item = document.createElement("li");
  const swatch = document.createElement("span");
  swatch.className = `t ${css}`;
  swatch.textContent = "abc";
  swatch.setAttribute("aria-hidden", "true");
  item.append(swatch, ` ${name}${count ? ` ${count.toLocaleString("en")}` : ""}`);
  if (about) item.title = about;
  return item;
}

async function start() {
  const roots = [...document.querySelectorAll("[data-tokens]")];
  const select = document.querySelector(".tk-colour");
  const legend = document.querySelector(".tk-legend");
  const panel = document.querySelector(".tk-facts");
  if (!roots.length || !select || !panel) return;
  const facts = new Facts(panel, panel.dataset.record);
  const views = (await Promise.all(roots.map(root => show(root, facts)))).filter(Boolean);
  if (!views.length) return;
  select.replaceChildren(...Object.entries(views[0].colourings).map(([value, { name }]) => new Option(name, value)));
  const asked = new URL(location.href).searchParams.get("colour");
  select.value = asked in views[0].colourings ? asked : FIRST;
  const paint = () => {
    for (const view of views) view.colourBy(select.value);
    drawLegend(legend, views, select.value);
  };
  select.addEventListener("change", () => {
    const address = new URL(location.href);
    address.searchParams.set("colour", select.value);
    history.replaceState(null, "", address);
    paint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint();
  for (const [name, place] of new URLSearchParams(location.hash.slice(1))) {
    views.find(view => view._root.id === name)?.flow.go(Number(place));
  }
  document.documentElement.dataset.tokensReady = "true";
}

start();
