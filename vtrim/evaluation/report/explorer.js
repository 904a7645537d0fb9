// Lets the slider choose a size: numbers, tables and a line in the plots follow it.
(function () {
  "use strict";
  const element = document.getElementById("explorer-data");
  if (!element) return;
  const data = JSON.parse(element.textContent);
  const slider = document.getElementById("size");
  const NEAR = 6;
  const FOLLOWING = ["coverage", "utility", "domains", "misses"];
  const original = {};

  const count = (number) => number.toLocaleString("en");
  const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

  function write(name, value, note) {
    const holder = document.querySelector(`[data-read="${name}"]`);
    if (!holder) return;
    holder.textContent = value;
    document.querySelector(`[data-note="${name}"]`).textContent = note;
  }

  function readouts(i) {
    const k = data.k[i];
    write("k", count(k), `${percent(k / data.rows)} of ${count(data.rows)} rows`);
    write("coverage", percent(data.coverage[i], 2), "of the counted reply tokens");
    if (data.heldout) {
      const interval = data.low
        ? `95 %: ${percent(data.low[i])} to ${percent(data.high[i])}, `
          + `${count(data.conversations)} conversations`
        : "of tokens of held-out rows";
      write("heldout", percent(data.heldout[i], 2), interval);
    }
    if (data.utility) {
      write("reduction", percent(data.reduction[i]), "of a draft token's FLOPs, model");
      write("utility", data.utility[i].toFixed(4), `alpha ${data.alpha}`);
    }
    if (data.speed) write("speed", count(data.speed[i]), data.speed_note);
    if (data.misses) {
      const { within, share } = data.misses[1];
      write("misses", percent(share[i]),
        `of held-out conversations lack a token within ${within} reply tokens`);
    }
  }

  function row(seat) {
    const [id, counted, text] = data.seats[seat];
    const line = document.createElement("tr");
    const token = document.createElement("code");
    token.className = "token";
    token.textContent = text;
    line.insertCell().append(token);
    line.insertCell().textContent = id;
    line.insertCell().textContent = count(counted);
    return line;
  }

  function known(from, to) {
    const seats = Array.from({ length: to - from }, (_, j) => from + j);
    return seats.filter((seat) => seat in data.seats);
  }

  function edge(k) {
    document.getElementById("inside").replaceChildren(...known(Math.max(0, k - NEAR), k).map(row));
    document.getElementById("outside").replaceChildren(...known(k, k + NEAR).map(row));
  }

  function forced(k) {
    const without = data.forced.filter(([, , , seat]) => seat === 0 || seat > k);
    for (const cell of document.querySelectorAll("[data-forced]")) {
      const isForced = without.includes(data.forced[cell.dataset.forced]);
      cell.textContent = isForced ? "forced in" : "in anyway";
    }
    const effect = document.getElementById("forced-effect");
    if (!effect) return;
    const out = known(k, k + Math.min(without.length, NEAR)).map((seat) => data.seats[seat][2]);
    const more = out.length < without.length ? " and others" : "";
    effect.textContent = without.length === 0
      ? "Here they change nothing: their counts alone would seat them."
      : `Without forcing, ${without.length} of them would have no seat here`
        + (out.length ? `; ${out.join(", ")}${more} would.` : ".");
  }

  function follow(k) {
    const colour = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
    const line = {
      type: "line", x0: k, x1: k, yref: "paper", y0: 0, y1: 1, line: { color: colour, width: 2 },
    };
    for (const name of FOLLOWING) {
      const holder = document.querySelector(`[data-figure="${name}"]`);
      if (!holder) continue;
      const { layout } = window.vtrimFigures[name];
      original[name] = original[name] || layout.shapes || [];
      layout.shapes = [...original[name], line];
      Plotly.relayout(holder, { shapes: layout.shapes });
    }
  }

  function show(i) {
    const k = data.k[i];
    slider.value = i;
    slider.setAttribute("aria-valuetext", `k ${count(k)}`);
    readouts(i);
    for (const cell of document.querySelectorAll("[data-domain]")) {
      cell.textContent = percent(data.domains[cell.dataset.domain].coverage[i]);
    }
    edge(k);
    forced(k);
    follow(k);
  }

  for (const part of document.querySelectorAll("#slider, #readouts, .live")) part.hidden = false;
  slider.addEventListener("input", () => show(Number(slider.value)));
  for (const button of document.querySelectorAll("[data-size]")) {
    const i = data.k.indexOf(Number(button.dataset.size));
    button.addEventListener("click", () => { if (i >= 0) show(i); });
  }
  show(data.start);
})();
