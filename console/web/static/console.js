/* The slider over the log, and the values of charts. All else of a page works without this file. */
"use strict";
(() => {
  /* Show the step and the value under the pointer above a chart, and the newest value again. */
  document.addEventListener("mouseover", event => {
    const area = event.target.closest(".chart a");
    for (const shown of document.querySelectorAll("figcaption span[data-newest]")) {
      shown.textContent = shown.dataset.newest;
      delete shown.dataset.newest;
    }
    const value = area?.closest("figure")?.querySelector("figcaption span");
    if (!value) return;
    value.dataset.newest = value.textContent;
    value.textContent = area.querySelector("title").textContent;
  });
})();
(() => {
  const slider = document.getElementById("moment");
  if (!slider) return;
  const chosen = document.getElementById("chosen"), step = document.getElementById("step");
  const marks = document.getElementById("steps"), options = [...marks.options];
  const read = Number(slider.max); /* the marks are of the steps up to here */
  const live = !new URL(location.href).searchParams.has("at");
  let moving = false;

  /* Show the page at an offset of control. */
  function show(offset) {
    const url = new URL(location.href);
    url.searchParams.set("at", `control:${offset}`);
    for (const part of ["follow", "before", "control", "time"]) url.searchParams.delete(part);
    sessionStorage.setItem("slider", "focus");
    location.assign(url);
  }
  /* Return the step that an offset belongs to; about, if only some steps have a mark. */
  function stepAt(offset) {
    if (offset > read) return "";
    const next = options.find(mark => Number(mark.value) >= offset);
    if (next) return "every" in marks.dataset ? next.label : `about ${next.label}`;
    return options.length ? `after ${options.at(-1).label}` : "";
  }
  slider.addEventListener("input", () => {
    moving = true;
    chosen.value = `control:${slider.value}`;
    step.value = stepAt(Number(slider.value));
  });
  slider.addEventListener("change", () => show(slider.value));
  if (sessionStorage.getItem("slider")) {
    sessionStorage.removeItem("slider");
    slider.focus();
  }
  /* The log grows: so does the slider, which stays at its end unless somebody holds it. */
  document.addEventListener("htmx:after:swap", () => {
    const { last, step: newest } = document.querySelector("#status [data-last]")?.dataset ?? {};
    if (!last) return;
    slider.max = last;
    if (live && !moving) { slider.value = last; chosen.value = `control:${last}`; step.value = newest; }
  });
})();
