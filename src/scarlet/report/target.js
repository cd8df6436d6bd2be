
// What each variant needs for a server accuracy: the first round in which its mean curve is as high.
const slider = document.getElementById("target");

const digits = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3));

function renewCosts() {
  const target = Number(slider.value);
  slider.nextElementSibling.textContent = target.toFixed(3);
  const rows = all(".cost tbody tr").map((row) => {
    const { steps } = page.variants[row.dataset.variant];
    return { row, steps, step: steps.find((step) => step[0] >= target - 1e-9) };
  });
  const most = Math.max(...rows.filter(({ row, step }) => step && !row.hidden).map(({ step }) => step[2 + count]));
  for (const { row, steps, step } of rows) {
    const [, megabytes, rounds, bar] = row.cells;
    const { colour, opacity } = page.variants[row.dataset.variant];
    megabytes.textContent = step ? digits(step[2 + count]) : steps.length ? "not reached" : "no server model";
    megabytes.className = step ? "" : "quiet";
    rounds.textContent = step ? step[1] : "";
    const width = step && most ? (100 * step[2 + count]) / most : 0;
    Object.assign(bar.firstChild.style, { width: `${width}%`, background: colour, opacity });
  }
}

if (slider) {
  slider.addEventListener("input", renewCosts);
  renewals.push(renewCosts);
}
