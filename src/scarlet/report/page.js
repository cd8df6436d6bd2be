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

// A choice of what is counted shows the tables and figures that are for it.
for (const button of document.querySelectorAll(".choice button")) {
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll(".choice button")) {
      other.setAttribute("aria-checked", String(other === button));
    }
    for (const part of document.querySelectorAll("[data-count]")) {
      part.hidden = part.dataset.count !== button.value;
      if (part.hidden) continue;
      // A plot that was drawn while it was hidden does not know its width.
      for (const plot of part.querySelectorAll(".js-plotly-plot")) Plotly.Plots.resize(plot);
    }
  });
}
