// Draws every figure, in the colours of the page, and again when the reader's scheme changes.
(function () {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  window.vtrimFigures = figures;
  const holders = document.querySelectorAll("[data-figure]");

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // plotly gives every entry of a legend the room of the longest, and takes it from the plot
  function legendRows(figure, width) {
    const names = figure.data.filter((trace) => trace.showlegend !== false && trace.name)
      .map((trace) => trace.name.length);
    if (figure.layout.showlegend === false || names.length < 2) return 1;
    const each = 45 + 6.6 * Math.max(...names);
    return Math.ceil(names.length / Math.max(1, Math.floor(width / each)));
  }

  function styled(figure, width) {
    const layout = figure.layout;
    const narrow = width < 480;
    const legend = 19 * (legendRows(figure, width) - 1);
    const ticks = { tickfont: { size: 11 }, dtick: narrow ? 1 : "D2" };
    const axis = (given, side) => ({
      gridcolor: colour("--grid"), zerolinecolor: colour("--grid"), linecolor: colour("--grid"),
      automargin: side, ...given, ...(given.type === "log" ? ticks : {}),
    });
    return {
      ...layout, height: (layout.height || 340) + legend,
      font: { family: "system-ui, sans-serif", size: narrow ? 11 : 12, color: colour("--ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 10, r: 24, t: 10, b: 10 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" },
      hoverlabel: { bgcolor: colour("--card"), font: { color: colour("--ink") } },
      showlegend: layout.showlegend !== false,
      xaxis: axis(layout.xaxis, "bottom"), yaxis: axis(layout.yaxis, "left"),
    };
  }

  // labels of bars that lie take their room from the bars: on several lines they take less
  function wrapped(text, most) {
    const lines = [""];
    for (const word of text.split(" ")) {
      const line = `${lines.at(-1)} ${word}`.trim();
      if (lines.at(-1) && line.length > most) lines.push(word);
      else lines[lines.length - 1] = line;
    }
    return lines.join("<br>");
  }

  function fitting(trace, width) {
    if (trace.orientation !== "h") return trace;
    return { ...trace, y: trace.y.map((label) => wrapped(label, width < 480 ? 18 : 32)) };
  }

  function draw() {
    for (const holder of holders) {
      const figure = figures[holder.dataset.figure];
      const layout = styled(figure, holder.clientWidth);
      const data = figure.data.map((trace) => fitting(trace, holder.clientWidth));
      Plotly.react(holder, data, layout, { responsive: true, displayModeBar: false });
    }
  }

  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
