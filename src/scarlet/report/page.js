// A click on a method in the legend hides or shows it in every figure.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const visible = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(visible));
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
      const traces = plot.data.flatMap((trace, i) => (trace.legendgroup === button.value ? [i] : []));
      if (traces.length) Plotly.restyle(plot, { visible }, traces);
    }
  });
}
