// Zoom and move the drawings: drag, the buttons, Ctrl and the wheel. Without scripts each shows its whole graph.
for (const box of document.querySelectorAll(".graph")) {
  const svg = box.querySelector("svg");
  if (!svg) continue;
  const whole = svg.viewBox.baseVal, all = [whole.x, whole.y, whole.width, whole.height];
  let view = all.slice(), held = null, next = 0;
  const show = () => svg.setAttribute("viewBox", view.join(" "));
  const zoom = (by, x = view[0] + view[2] / 2, y = view[1] + view[3] / 2) => {
    view = [x - (x - view[0]) * by, y - (y - view[1]) * by, view[2] * by, view[3] * by];
    show();
  };
  const changes = [...svg.querySelectorAll(".removed, .added, .changed")];
  const centre = (node) => {
    const at = node.transform.baseVal.consolidate().matrix, wide = Math.max(520, svg.clientWidth);
    view = [at.e + 84 - wide / 2, at.f + 19 - (wide * svg.clientHeight) / svg.clientWidth / 2, wide, (wide * svg.clientHeight) / svg.clientWidth];
    view[1] = Math.max(view[1], 0);
    show();
  };
  const does = {
    in: () => zoom(0.7), out: () => zoom(1 / 0.7), whole: () => { view = all.slice(); show(); },
    next: () => { if (changes.length) centre(changes[next++ % changes.length]); },
  };
  for (const button of box.querySelectorAll("button")) button.addEventListener("click", does[button.dataset.do]);
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15);
  }, { passive: false });
  svg.addEventListener("pointerdown", (event) => { held = [event.clientX, event.clientY]; svg.setPointerCapture(event.pointerId); });
  svg.addEventListener("pointerup", () => { held = null; });
  svg.addEventListener("pointermove", (event) => {
    if (!held) return;
    const by = Math.max(view[2] / svg.clientWidth, view[3] / svg.clientHeight);
    view[0] -= (event.clientX - held[0]) * by;
    view[1] -= (event.clientY - held[1]) * by;
    held = [event.clientX, event.clientY];
    show();
  });
  if (all[3] > 900 || all[2] > 1400) does.next();
}
