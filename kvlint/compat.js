"use strict";
(() => {
  const find = (selector, from = document) => [...from.querySelectorAll(selector)];
  const filter = document.getElementById("filter");
  const kinds = ["b", "s"].map((id) => document.getElementById(id));
  const shown = document.getElementById("shown");
  const unfold = document.getElementById("unfold");
  const columns = find("th.release button");
  const groups = find("tbody").map((body) => ({
    body,
    fold: body.querySelector("tr.file button"),
    rows: find("tr.row", body).map((row) => ({
      row,
      states: row.dataset.states,
      text: (body.dataset.path + " " + row.querySelector("th").textContent).toLowerCase(),
    })),
  }));
  const total = groups.reduce((sum, group) => sum + group.rows.length, 0);
  let column = -1;

  const update = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = kinds.filter((box) => box.checked).map((box) => box.id);
    let count = 0;
    for (const { body, fold, rows } of groups) {
      let here = 0;
      for (const { row, states, text } of rows) {
        const looked = column < 0 ? states : states[column];
        const fits = wanted.some((kind) => looked.includes(kind)) && words.every((word) => text.includes(word));
        row.hidden = !fits || fold.getAttribute("aria-expanded") === "false";
        here += fits;
      }
      body.hidden = here === 0;
      count += here;
    }
    shown.textContent = count === total ? "" : `${count} of ${total} uses shown`;
  };

  filter.addEventListener("input", update);
  kinds.forEach((box) => box.addEventListener("change", update));
  columns.forEach((button, index) =>
    button.addEventListener("click", () => {
      column = column === index ? -1 : index;
      columns.forEach((other, at) => other.setAttribute("aria-pressed", String(at === column)));
      update();
    }),
  );
  groups.forEach(({ fold }) =>
    fold.addEventListener("click", () => {
      fold.setAttribute("aria-expanded", String(fold.getAttribute("aria-expanded") === "false"));
      update();
    }),
  );
  const open = (all) => find("details").forEach((item) => (item.open = all));
  unfold.addEventListener("click", () => {
    const all = unfold.getAttribute("aria-pressed") === "false";
    unfold.setAttribute("aria-pressed", String(all));
    unfold.textContent = all ? "Fold all" : "Unfold all";
    open(all);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target.tagName !== "INPUT") {
      event.preventDefault();
      filter.focus();
    } else if (event.key === "Escape" && event.target === filter) {
      filter.value = "";
      update();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.tagName === "SUMMARY") {
      event.preventDefault();
      const summaries = find("tr.row:not([hidden]) summary").filter((item) => item.offsetParent !== null);
      const next = summaries[summaries.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) next.focus();
    } else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && columns.includes(event.target)) {
      event.preventDefault();
      const next = columns[columns.indexOf(event.target) + (event.key === "ArrowRight" ? 1 : -1)];
      if (next) next.focus();
    }
  });
})();
