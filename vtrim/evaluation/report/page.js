// Draws every figure, in the colours of the page, and again when the reader's scheme changes.
(function () {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  window.vtrimFigures = figures;
  const holders = document.querySelectorAll("[data-figure]");

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function styled(layout, width) {
    const narrow = width < 480;
    const ticks = { tickfont: { size: 11 }, dtick: narrow ? 1 : "D2" };
    const axis = (given) => ({
      gridcolor: colour("--grid"), zerolinecolor: colour("--grid"), linecolor: colour("--grid"),
      automargin: true, ...given, ...(given.type === "log" ? ticks : {}),
    });
    return {
      height: 340, ...layout,
      font: { family: "system-ui, sans-serif", size: narrow ? 11 : 12, color: colour("--ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 10, r: 12, t: 10, b: 10 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" },
      hoverlabel: { bgcolor: colour("--card"), font: { color: colour("--ink") } },
      showlegend: layout.showlegend !== false,
      xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
    };
  }

  function draw() {
    for (const holder of holders) {
      const figure = figures[holder.dataset.figure];
      const layout = styled(figure.layout, holder.clientWidth);
      Plotly.react(holder, figure.data, layout, { responsive: true, displayModeBar: false });
    }
  }

  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
