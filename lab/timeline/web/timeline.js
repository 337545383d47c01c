/* Timelines of runs, each on a canvas. The data of one are in the page, or at the address that the
   element around it names (data-timeline). */
"use strict";
document.querySelectorAll(".timeline").forEach(root => {
const AXIS = 24, RIGHT = 62;
const STEPS_Y = 20, LANE_H = 15, GROUPS_H = 36;
let STEPS_H, GROUPS_Y, MARKS_Y, TOP; /* lower by a lane for each further policy */
const within = part => root.querySelector(part), $ = name => within(`.timeline-${name}`);
const ink = name => getComputedStyle(root).getPropertyValue(`--${name}`);
const url = root.closest("[data-timeline]")?.dataset.timeline;
const moments = root.closest("[data-moments]")?.dataset.moments; /* page that shows the run at a time */
let data, rows, view, colours, left = 60, hovered = -1, sortedBy = 0;

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(plain).text());
}
/* Times and values of a list of pairs whose times are differences. */
function pairs(flat) {
  const times = [], values = [];
  for (let i = 0, at = 0; i < flat.length; i += 2) { times.push(at += flat[i]); values.push(flat[i + 1]); }
  return { times, values };
}
function barsOf(worker) {
  const n = worker.bars.length / 3, start = new Float64Array(n), end = new Float64Array(n), mix = new Int32Array(n);
  for (let i = 0, at = 0; i < n; i++) {
    start[i] = at += worker.bars[3 * i]; end[i] = at += worker.bars[3 * i + 1]; mix[i] = worker.bars[3 * i + 2];
  }
  return { ...worker, start, end, mix, given: pairs(worker.given), loaded: pairs(worker.loaded) };
}
/* Number of the last entry at or before a time, or -1. */
function lastBefore(times, at) {
  let low = 0, high = times.length;
  while (low < high) { const middle = (low + high) >> 1; if (times[middle] <= at) low = middle + 1; else high = middle; }
  return low - 1;
}
const seconds = ms => {
  const s = (ms - data.training_ms[0]) / 1000, span = view.to - view.from;
  return s.toFixed(span < 2e3 ? 3 : span < 2e4 ? 2 : span < 2e5 ? 1 : 0) + " s";
};
const clock = ms => new Date(data.start_ms + ms).toISOString().slice(11, 23) + " UTC";
const lasting = ms => ms < 1e3 ? Math.round(ms) + " ms" : (ms / 1000).toFixed(ms < 1e5 ? 2 : 0) + " s";
const number = n => Number(n).toLocaleString("en");
const width = () => $("chart").clientWidth - left - RIGHT;
const area = () => $("chart").clientHeight - TOP - AXIS;
const xOf = ms => left + (ms - view.from) / (view.to - view.from) * width();
const msOf = x => view.from + (x - left) / width() * (view.to - view.from);

function clampView() {
  const span = Math.min(data.length_ms, Math.max(5, view.to - view.from));
  view.from = Math.min(Math.max(0, view.from), data.length_ms - span); view.to = view.from + span;
  view.top = Math.min(Math.max(0, view.top), Math.max(0, rows.length * view.row - area()));
}
function show(from, to) { view.from = from; view.to = to; redraw(); }
let asked = false;
function redraw() {
  clampView();
  if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); }
}
function remember() { try { sessionStorage.setItem("timeline", JSON.stringify(view)); } catch { /* a page from a file may not */ } }

/* Time of each part in each of n columns, from one row's bars. */
function columns(row, from, to, n) {
  const parts = data.parts.length, sums = new Float32Array(n * parts), each = (to - from) / n;
  for (let i = Math.max(0, lastBefore(row.start, from)); i < row.start.length && row.start[i] < to; i++) {
    const a = Math.max(row.start[i], from), b = Math.min(row.end[i], to), mix = data.mixes[row.mix[i]];
    if (b <= a) continue;
    const first = Math.floor((a - from) / each), last = Math.min(n - 1, Math.floor((b - from) / each));
    for (let c = first; c <= last; c++) {
      const inside = Math.min(b, from + (c + 1) * each) - Math.max(a, from + c * each);
      for (let k = 0; k < mix.length; k += 2) sums[c * parts + mix[k]] += inside * mix[k + 1];
    }
  }
  return sums;
}
function paintRows(context, scale) {
  const w = Math.round(width() * scale), h = Math.round(area() * scale);
  if (w < 1 || h < 1) return;
  const image = context.createImageData(w, h), pixels = new Uint32Array(image.data.buffer);
  const first = Math.floor(view.top / view.row), parts = data.parts.length;
  for (let r = first; r < rows.length && r * view.row - view.top < area(); r++) {
    const y0 = Math.round((r * view.row - view.top) * scale), tall = view.row * scale;
    const high = Math.max(1, Math.round(view.row >= 6 ? tall * 0.8 : tall)), sums = columns(rows[r], view.from, view.to, w);
    for (let c = 0; c < w; c++) {
      let total = 0;
      for (let k = 0; k < parts; k++) total += sums[c * parts + k];
      if (total > 0) paintColumn(pixels, w, h, c, y0, high, sums, c * parts, total);
    }
  }
  context.putImageData(image, Math.round(left * scale), Math.round(TOP * scale));
}
/* A column of a bar: parts from the bottom up; in a low row one mixed colour. */
function paintColumn(pixels, w, h, c, y0, high, sums, at, total) {
  if (high < 5) {
    let red = 0, green = 0, blue = 0;
    data.rgb.forEach((rgb, k) => { const s = sums[at + k] / total; red += s * rgb[0]; green += s * rgb[1]; blue += s * rgb[2]; });
    const colour = (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
    for (let y = Math.max(0, y0); y < Math.min(h, y0 + high); y++) pixels[y * w + c] = colour;
    return;
  }
  let sum = 0;
  for (let k = 0; k < data.rgb.length; k++) {
    if (!sums[at + k]) continue;
    const low = y0 + high - Math.round(sum / total * high);
    sum += sums[at + k];
    for (let y = Math.max(0, y0 + high - Math.round(sum / total * high)); y < Math.min(h, low); y++) pixels[y * w + c] = data.packed[k];
  }
}
function draw() {
  const canvas = $("chart"), scale = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  canvas.width = Math.round(w * scale); canvas.height = Math.round(h * scale);
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  colours = Object.fromEntries(["ink", "faint", "named", "dash", "waits", "paper", "under"].map(name => [name, ink(name)]));
  paintRows(context, scale);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = "11px system-ui, 'DejaVu Sans', sans-serif"; context.textBaseline = "middle";
  drawNames(context, w); drawVersions(context, h); drawSteps(context); drawGroups(context); drawMarks(context); drawAxis(context, h);
  remember();
}
function text(context, words, x, y, align = "left", colour = colours.faint) {
  context.textAlign = align; context.fillStyle = colour; context.fillText(words, x, y);
}
function drawNames(context, w) {
  const lanes = data.lanes.map((policy, k) => [several() ? policy : "batches", STEPS_Y + (k + 0.5) * LANE_H]);
  for (const [words, y] of [...lanes, ["groups", GROUPS_Y + GROUPS_H / 2], ["events", MARKS_Y]])
    text(context, words, left - 8, y, "right");
  const every = Math.max(1, Math.ceil(12 / view.row));
  context.save(); context.beginPath(); context.rect(0, TOP, w, area()); context.clip();
  for (let r = Math.ceil(view.top / view.row / every) * every - every; r < rows.length; r += every) {
    const y = TOP + (r + 0.4) * view.row - view.top;
    if (r < 0 || y > TOP + area() + view.row) continue;
    text(context, rows[r].name, left - 8, y, "right", r === hovered ? colours.named : colours.ink);
    if (rows[r].idle !== null) text(context, (100 * rows[r].idle).toFixed(0) + "% idle", w - RIGHT + 6, y);
  }
  context.restore();
}
function drawVersions(context, h) {
  const nearest = several() ? 34 + 6 * Math.max(...data.lanes.map(policy => policy.length)) : 34;
  let before = -1e9;
  context.save(); context.beginPath(); context.rect(left - 14, 0, width() + 28, h); context.clip(); context.setLineDash([2, 3]);
  for (const [at, version, policy] of data.versions) {
    const x = xOf(at);
    if (x < left - 1 || x > left + width() + 1 || x - before < nearest) continue;
    before = x; context.strokeStyle = colours.dash; context.beginPath(); context.moveTo(x, 15); context.lineTo(x, h - AXIS); context.stroke();
    text(context, (several() ? policy + " " : "") + "v" + version, x, 8, "center");
  }
  context.restore();
}
function drawSteps(context) {
  context.save(); context.beginPath(); context.rect(left, STEPS_Y, width(), STEPS_H); context.clip();
  for (const [ready, started, ended, step, , , , , policy] of data.steps) {
    const begin = ready ?? started ?? ended, end = ended ?? data.length_ms;
    if (begin > view.to || end < view.from) continue;
    const a = xOf(begin), b = xOf(started ?? end), c = xOf(end), y = STEPS_Y + data.lanes.indexOf(policy) * LANE_H;
    context.fillStyle = colours.waits; context.fillRect(a, y, b - a, LANE_H);
    context.fillStyle = "#f28e2b"; context.fillRect(b, y, Math.max(0.5, c - b), LANE_H);
    context.strokeStyle = colours.paper; context.strokeRect(a, y, c - a, LANE_H);
    if (c - a > 22) text(context, (c - a > 60 ? "step " : "") + step, (Math.max(a, left) + Math.min(c, left + width())) / 2, y + LANE_H / 2, "center", colours.ink);
  }
  context.restore();
}
function drawGroups(context) {
  const { times, values } = data.groups, most = Math.max(1, ...data.peaks), base = GROUPS_Y + GROUPS_H;
  context.fillStyle = colours.under; context.beginPath(); context.moveTo(left, base);
  for (let x = 0; x <= width(); x++) {
    const i = lastBefore(times, msOf(left + x));
    context.lineTo(left + x, base - (i < 0 ? 0 : values[i]) / most * GROUPS_H);
  }
  context.lineTo(left + width(), base); context.fill();
  text(context, "≤ " + number(most), left + width() + 6, GROUPS_Y + 6);
}
function drawMarks(context) {
  context.fillStyle = "#c5221f";
  for (const [at] of data.marks) {
    const x = xOf(at);
    if (x < left || x > left + width()) continue;
    context.beginPath(); context.moveTo(x, MARKS_Y - 5); context.lineTo(x + 4, MARKS_Y + 4); context.lineTo(x - 4, MARKS_Y + 4); context.fill();
  }
}
function drawAxis(context, h) {
  const span = view.to - view.from, rough = span / Math.max(2, width() / 90), power = 10 ** Math.floor(Math.log10(rough));
  const tick = [1, 2, 5, 10].map(f => f * power).find(f => f >= rough), zero = data.training_ms[0];
  for (let at = Math.ceil((view.from - zero) / tick) * tick + zero; at <= view.to; at += tick)
    text(context, ((at - zero) / 1000).toFixed(Math.max(0, Math.ceil(-Math.log10(tick / 1000) - 1e-9))) + " s", xOf(at), h - AXIS / 2, "center");
}
/* Lines of text about the place under the pointer; empty: nothing is there. */
function factsAt(x, y) {
  const at = msOf(x), px = (view.to - view.from) / width();
  if (x < left || x > left + width()) return [];
  if (inSteps(y)) return stepFacts(stepUnder(x, y));
  if (y >= GROUPS_Y && y < GROUPS_Y + GROUPS_H) return [seconds(at), (data.groups.values[lastBefore(data.groups.times, at)] ?? 0) + " groups under way"];
  if (Math.abs(y - MARKS_Y) < 8) return data.marks.filter(m => Math.abs(m[0] - at) < 5 * px).slice(0, 8).map(m => seconds(m[0]) + "  " + m[1]);
  const row = rowUnder(y);
  return row ? rowFacts(row, at, px) : [];
}
const rowUnder = y => y < TOP || y > TOP + area() ? undefined : rows[Math.floor((y - TOP + view.top) / view.row)];
const several = () => data.lanes.length > 1;
const inSteps = y => y >= STEPS_Y && y < STEPS_Y + STEPS_H;
const stepUnder = (x, y) => stepAt(msOf(x), 4 * (view.to - view.from) / width(), data.lanes[Math.floor((y - STEPS_Y) / LANE_H)]);
const stepAt = (at, slack, policy) => data.steps.find(([ready, started, ended, , , , , , of]) => of === policy && (ready ?? started ?? ended) - slack <= at && at <= (ended ?? data.length_ms) + slack);
function stepFacts(of) {
  if (!of) return [];
  const [ready, started, ended, step, version, groups, tokens, workers, policy] = of, lines = [`step ${step}${policy ? " of " + policy : ""}: ${groups} groups, ${number(tokens)} tokens`];
  if (ready !== null) lines.push(`batch ready at ${seconds(ready)}` + (started !== null ? `, waited ${lasting(started - ready)} for its gang` : ", waits for its gang"));
  if (started !== null) lines.push(`${workers === 1 ? "1 worker" : workers + " workers"} trained from ${seconds(started)}` + (ended !== null ? `, for ${lasting(ended - started)}` : ""));
  if (version !== null) lines.push(`made v${version}`);
  return lines;
}
function rowFacts(row, at, px) {
  const i = lastBefore(row.start, at);
  if (i < 0 || row.end[i] + px < at) return [row.name, `${seconds(at)}, ${clock(at)}`, "not there"];
  const small = row.end[i] - row.start[i] < px, from = small ? at - px / 2 : row.start[i], to = small ? at + px / 2 : row.end[i];
  const sums = Array.from(columns(row, from, to, 1)), total = sums.reduce((a, b) => a + b, 0) || 1;
  const lines = [row.name, `${seconds(from)} to ${seconds(to)} (${lasting(to - from)}), from ${clock(from)}`];
  sums.map((sum, k) => [sum, k]).filter(p => p[0] > 0).sort((a, b) => b[0] - a[0])
    .forEach(([sum, k]) => lines.push(`${data.parts[k][0]} ${(100 * sum / total).toFixed(0)} %`));
  const v = lastBefore(row.loaded.times, at), g = lastBefore(row.given.times, at);
  const policy = several() && g >= 0 ? data.givens[row.given.values[g]][3] : data.lanes[0];
  const trained = sums[data.training_part] > 0 ? stepAt(at, 0, policy) : null;
  if (trained) lines.push(...stepFacts(trained));
  if (v >= 0) lines.push(`loaded last: v${row.loaded.values[v]} at ${seconds(row.loaded.times[v])}`);
  if (g >= 0) {
    const [role, reason, figures] = data.givens[row.given.values[g]];
    lines.push(`assigned ${role}${several() ? " of " + policy : ""} at ${seconds(row.given.times[g])}: ${reason}`);
    for (const [name, value] of Object.entries(figures)) lines.push(`  ${name.replaceAll("_", " ")} ${number(value)}`);
  }
  return lines;
}
function hover(event) {
  const box = $("chart").getBoundingClientRect(), tip = $("tip"), lines = factsAt(event.clientX - box.left, event.clientY - box.top);
  tip.textContent = lines.join("\n"); tip.style.display = lines.length ? "block" : "none";
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)) + "px";
}
function listen() {
  const canvas = $("chart");
  let drag = null;
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    const x = event.clientX - canvas.getBoundingClientRect().left;
    if (event.shiftKey || x < left) { view.top += event.deltaY || event.deltaX; return redraw(); }
    const at = msOf(x), factor = Math.exp(Math.max(-300, Math.min(300, event.deltaY)) * 0.002);
    show(at - (at - view.from) * factor, at + (view.to - at) * factor);
  }, { passive: false });
  canvas.addEventListener("pointerdown", event => { drag = { x: event.clientX, y: event.clientY, ...view, far: 0 }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", event => {
    if (!drag) return hover(event);
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y, moved = -dx / width() * (drag.to - drag.from);
    drag.far = Math.max(drag.far, Math.abs(dx) + Math.abs(dy)); view.top = drag.top - dy; $("tip").style.display = "none";
    show(drag.from + moved, drag.to + moved);
  });
  canvas.addEventListener("pointerup", event => { if (drag && drag.far < 4) click(event); drag = null; });
  canvas.addEventListener("pointerleave", () => { $("tip").style.display = "none"; });
  $("whole").onclick = () => show(0, data.length_ms);
  $("training").onclick = () => show(...data.training_ms);
  $("taller").onclick = () => { view.row = Math.min(60, view.row * 1.5); size(); redraw(); };
  $("lower").onclick = () => { view.row = Math.max(1, view.row / 1.5); size(); redraw(); };
  addEventListener("resize", () => { size(); redraw(); });
}
function click(event) {
  const box = $("chart").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const of = inSteps(y) ? stepUnder(x, y) : null;
  if (moments && rowUnder(y) && x >= left && x <= left + width()) location.assign(`${moments}?time=${Math.ceil(data.start_ms + msOf(x))}`);
  if (of) { const begin = of[0] ?? of[1], end = of[2] ?? data.length_ms, more = (end - begin) / 4 + 1; show(begin - more, end + more); }
}
function table() {
  const sums = data.parts.map((_, k) => rows.reduce((sum, row) => sum + row.spent_ms[k], 0));
  const shown = data.parts.map((_, k) => k).filter(k => sums[k] > 0);
  const cells = (name, idle, spent) => { const total = spent.reduce((a, b) => a + b, 0) || 1; return [name, idle ?? 0, ...shown.map(k => spent[k] / total)]; };
  const lines = rows.map((row, r) => ({ r, cells: cells(row.name, row.idle, row.spent_ms) }));
  const head = ["worker", "idle", ...shown.map(k => data.parts[k][0])];
  const line = (kind, values, to) => {
    const tr = to.insertRow();
    values.forEach(value => { const cell = document.createElement(kind); cell.textContent = typeof value === "number" ? (100 * value).toFixed(1) + " %" : value; tr.append(cell); });
    return tr;
  };
  const fill = () => {
    const body = within("tbody"); body.replaceChildren();
    for (const { r, cells: values } of [...lines].sort((a, b) => sortedBy ? b.cells[sortedBy] - a.cells[sortedBy] : a.r - b.r)) line("td", values, body).onclick = () => { hovered = r; view.top = r * view.row - area() / 2; redraw(); scrollBy(0, root.getBoundingClientRect().top - 110); };
  };
  within("thead").replaceChildren(); within("tfoot").replaceChildren();
  line("td", cells("all workers", data.idle, sums), within("tfoot"));
  [...line("th", head, within("thead")).cells].forEach((cell, c) => { cell.onclick = () => { sortedBy = c; fill(); }; });
  fill();
}
function size() {
  const room = Math.max(120, innerHeight - TOP - AXIS - 150), wanted = rows.length * view.row + 4;
  $("chart").style.height = TOP + AXIS + Math.min(room, Math.max(40, wanted)) + "px";
}
function prepare(found) {
  data = found; rows = data.workers.map(barsOf); data.groups = pairs(data.under_way);
  data.lanes = [...new Set(data.steps.map(of => of[8]))];
  if (!data.lanes.length) data.lanes = [""];
  const lower = LANE_H * (data.lanes.length - 1);
  STEPS_H = LANE_H + lower; GROUPS_Y = 42 + lower; MARKS_Y = 86 + lower; TOP = 106 + lower;
  data.peaks = [data.groups.values.reduce((a, b) => Math.max(a, b), 0)];
  left = 16 + 6.6 * Math.max(7, ...rows.map(row => row.name.length).slice(0, 2000), ...data.lanes.map(policy => policy.length));
  data.rgb = data.parts.map(([, colour]) => [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16)));
  data.packed = data.rgb.map(([red, green, blue]) => (255 << 24 | blue << 16 | green << 8 | red) >>> 0);
}
function look() {
  const [first, last] = data.training_ms, trained = data.steps.length && !data.refresh_s;
  view = { from: trained ? first : 0, to: trained ? last : data.length_ms, top: 0, row: Math.max(3, Math.min(34, (innerHeight - 290) / Math.max(1, rows.length))) };
  if (data.refresh_s && !url) {
    try { Object.assign(view, JSON.parse(sessionStorage.getItem("timeline"))); } catch { /* the first time */ }
    setTimeout(() => location.reload(), 1000 * data.refresh_s);
  }
}
function words() {
  $("title").textContent = data.title;
  const ended = data.steps.filter(of => of[2] !== null), took = data.training_ms[1] - data.training_ms[0];
  const done = data.lanes.map(policy => `${ended.filter(of => of[8] === policy).length} of ${policy}`);
  $("summary").textContent = [`${ended.length} optimizer steps in ${lasting(took)}` + (several() ? ": " + done.join(", ") : ""), `${rows.length} workers`, `${data.switches} changes of role`,
    `${data.handed_back} turns handed back`, `idle ${(100 * data.idle).toFixed(1)} % of device time`, `0 s is ${new Date(data.start_ms + data.training_ms[0]).toISOString()}`].join("   ·   ");
  $("legend").replaceChildren();
  data.parts.forEach(([label, colour], k) => {
    if (!rows.some(row => row.spent_ms[k] > 0) && !data.mixes.some(mix => mix.some((v, i) => i % 2 === 0 && v === k))) return;
    const entry = document.createElement("span"), box = document.createElement("i");
    box.style.background = colour; entry.append(box, label); $("legend").append(entry);
  });
  const note = document.createElement("small"); note.textContent = data.legend; $("legend").append(note);
}
function begin(found) {
  prepare(found); look(); words(); size(); listen(); table(); redraw(); again();
  if (moments) within("small").append(", on a worker's bar: the run at that moment");
}
/* The run goes on: a view of all of it grows, any other one stays. */
function grow(found) {
  const whole = view.from === 0 && view.to === data.length_ms;
  prepare(found);
  if (whole) view.to = data.length_ms;
  words(); size(); table(); redraw(); again();
}
function again() {
  if (url && data.refresh_s) setTimeout(() => document.hidden ? again() : load().then(grow).catch(error => { fail(error); again(); }), 1000 * data.refresh_s);
}
function load() {
  return fetch(url, { headers: { accept: "application/json" } }).then(answer => answer.json()).then(twin => twin.page ?? Promise.reject(new Error(twin.error)));
}
function fail(error) { $("summary").textContent = String(error.message ?? error); }
(url ? load() : unpack(document.getElementById("timeline-data").textContent)).then(begin).catch(fail);
});
