/* The strip: a whole session on one line, as the overview has it. A click goes to that place. */

import { ofPart } from "./colours.js";

const BIG_STEP = 10;

export class Strip {
  constructor(session, go) {
    this._session = session;
    this._go = go;
    this._shown = [0, 0];
    this.element = document.createElement("canvas");
    this.element.className = "tk-strip";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "slider");
    this.element.setAttribute("aria-label", `Place in session ${session.twin.session}`);
    this.element.setAttribute("aria-valuemin", "0");
    this.element.setAttribute("aria-valuemax", String(Math.max(0, session.size - 1)));
    this.element.setAttribute("aria-valuenow", "0");
    this.element.addEventListener("pointerdown", event => this._point(event));
    this.element.addEventListener("pointermove", event => event.buttons && this._point(event));
    this.element.addEventListener("keydown", event => this._key(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  colourBy(colouring) { this._colouring = colouring; this.draw(); }

  /* Mark the tokens that the flow shows at the moment. */
  show(begin, end) {
    this._shown = [begin, end];
    this.element.setAttribute("aria-valuenow", String(begin));
    this.element.setAttribute("aria-valuetext", `token ${begin + 1} of ${this._session.size}`);
    this.draw();
  }

  draw() {
    const { begins } = this._session.twin.overview;
    const canvas = this.element, scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width || !this._colouring || !begins.length) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const colours = new Map();
    for (let part = 0; part < begins.length; part++) {
      const css = this._colouring.classOf(ofPart(this._session.twin.overview, part));
      if (!colours.has(css)) colours.set(css, this._colour(css));
      pen.fillStyle = colours.get(css);
      const left = part / begins.length * width;
      pen.fillRect(left, 0, width / begins.length + 0.5, height);
    }
    const [begin, end] = this._shown.map(place => place / this._session.size * width);
    pen.strokeStyle = this._colour("tk-frame", "color");
    pen.lineWidth = 2;
    pen.strokeRect(begin + 1, 1, Math.max(4, end - begin - 2), height - 2);
  }

  /* The colour that the style sheet gives a class, in the theme of the moment. */
  _colour(css, property = "background-color") {
    const sample = document.createElement("i");
    sample.className = `t ${css}`;
    this.element.parentNode.append(sample);
    const colour = getComputedStyle(sample).getPropertyValue(property);
    sample.remove();
    return colour;
  }

  _point(event) {
    const share = event.offsetX / Math.max(1, this.element.clientWidth);
    this._go(this._place(share * this._session.size));
  }

  _key(event) {
    const part = this._session.size / Math.max(1, this._session.twin.overview.begins.length);
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -BIG_STEP, PageDown: BIG_STEP }[event.key];
    const ends = { Home: 0, End: this._session.size - 1 }[event.key];
    if (steps === undefined && ends === undefined) return;
    event.preventDefault();
    this._go(this._place(ends ?? this._shown[0] + steps * Math.max(1, part)));
  }

  _place(place) { return Math.max(0, Math.min(this._session.size - 1, Math.floor(place))); }
}
