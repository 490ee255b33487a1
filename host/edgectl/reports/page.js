"use strict";
(() => {
  const root = document.documentElement;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  for (const box of document.querySelectorAll("input[data-table]")) {
    const body = document.getElementById(box.dataset.table).tBodies[0];
    const count = document.getElementById(box.dataset.table + "-count");
    const filter = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        if (!row.hidden) shown += 1;
      }
      count.textContent = shown + " of " + body.rows.length;
    };
    box.addEventListener("input", filter);
    filter();
  }
  for (const head of document.querySelectorAll("th[data-sort]")) {
    const sort = () => {
      const table = head.closest("table");
      const falling = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const value = (row) => {
        const cell = row.cells[head.cellIndex];
        return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const x = value(a), y = value(b);
        const order = typeof x === "number" ? x - y : x.localeCompare(y);
        return falling ? -order : order;
      });
      table.tBodies[0].append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  }
})();
