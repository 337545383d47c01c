/* The slider over the log. Everything else of a page works without this file. */
"use strict";
(() => {
  const slider = document.getElementById("moment");
  if (!slider) return;
  const chosen = document.getElementById("chosen");
  const live = !new URL(location.href).searchParams.has("at");
  let moving = false;

  /* Show the page at an offset of control. */
  function show(offset) {
    const url = new URL(location.href);
    url.searchParams.set("at", `control:${offset}`);
    for (const part of ["follow", "before", "control"]) url.searchParams.delete(part);
    sessionStorage.setItem("slider", "focus");
    location.assign(url);
  }
  slider.addEventListener("input", () => { moving = true; chosen.value = `control:${slider.value}`; });
  slider.addEventListener("change", () => show(slider.value));
  if (sessionStorage.getItem("slider")) {
    sessionStorage.removeItem("slider");
    slider.focus();
  }
  /* The log grows: so does the slider, which stays at its end unless somebody holds it. */
  document.addEventListener("htmx:after:swap", () => {
    const last = document.querySelector("#status [data-last]")?.dataset.last;
    if (!last) return;
    slider.max = last;
    if (live && !moving) { slider.value = last; chosen.value = `control:${last}`; }
  });
})();
