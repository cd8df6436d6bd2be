
// Plots are drawn when they are first seen, and afterwards show and hide their lines.
const options = {
  responsive: true,
  displaylogo: false,
  displayModeBar: "hover",
  modeBarButtons: [["toImage", "resetScale2d"]],
};

function draw(plot) {
  const figure = JSON.parse(plot.nextElementSibling.textContent);
  for (const trace of figure.data) trace.visible = isShown(Number(trace.legendgroup));
  Plotly.newPlot(plot, figure.data, figure.layout, options);
}

function renewPlot(plot) {
  const visible = plot.data.map((trace) => isShown(Number(trace.legendgroup)));
  if (visible.some((each, i) => each !== plot.data[i].visible)) Plotly.restyle(plot, { visible });
  Plotly.Plots.resize(plot); // it may have been hidden while the window changed
}

const seen = () => all(".plot").filter((plot) => plot.offsetParent);
let latest = 0;

// One after the other, so that the page can be read and used meanwhile.
async function renewPlots() {
  const own = ++latest;
  for (const plot of seen()) {
    await new Promise((next) => setTimeout(next));
    if (own !== latest) return; // by now something else is to be shown
    plot.data ? renewPlot(plot) : draw(plot);
  }
  performance.mark("drawn");
}

renewals.push(renewPlots);

// On paper a plot must have the width of the sheet before it is printed.
addEventListener("beforeprint", () => {
  document.body.classList.add("paper");
  for (const plot of seen()) {
    if (!plot.data) draw(plot);
    Plotly.relayout(plot, { width: plot.parentElement.clientWidth });
  }
});
addEventListener("afterprint", () => {
  document.body.classList.remove("paper");
  for (const plot of all(".js-plotly-plot")) Plotly.relayout(plot, { width: null, autosize: true });
});

renew();
