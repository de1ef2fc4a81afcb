// The data of the page, made by the program (src/report/page_data.h), and its numbers as text. Every mean, interval and
// difference comes from there: the scripts choose what is shown, and draw it.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const {runs, differences, views = [], tasks = [], budgets = [], measures = [], routings = []} = data;

const unique = (values) => [...new Set(values)];
const ascending = (values) => unique(values).sort((a, b) => a - b);
const last = (values) => values[values.length - 1];
// Math.max(...values) fails for more arguments than fit on the stack.
const largest = (values) => values.reduce((most, value) => Math.max(most, value), -Infinity);
const smallest = (values) => values.reduce((least, value) => Math.min(least, value), Infinity);

// Arms of the comparison. The reference is grey. Eight colours, then the same with another marker.
const groups = data.arms.map((arm) => ({
                               ...arm,
                               colour: arm.colour ? `var(--c${(arm.colour - 1) % 8})` : 'var(--grey)',
                               marker: arm.colour ? Math.floor((arm.colour - 1) / 8) + 1 : 0,
                               runs: arm.runs.map((index) => runs[index])
                             }));
const looksOf = ({arm, mode}) =>
    ({colour: groups[arm].colour, marker: groups[arm].marker, dash: mode === 'a' ? '6 4' : undefined});

// --- measures ---
const measureOf = (name) => measures.find((measure) => measure.name === name);
const viewOf = (measure, task) => views.find((view) => view.measure === measure && view.task === task);
const tasksOf = (measure) => tasks.filter(({name}) => viewOf(measure, name));
// Shares are shown in percent.
const shownAs = (measure) => (value) => (value == null ? undefined : measure.share ? 100 * value : value);
// A mean with its interval as a point of a chart.
const pointOf = (x, {n, mean, low, high}, as) => ({x, y: as (mean), low: as (low), high: as (high), n});

// --- numbers as text ---
function compact(value, unit = '') {
  const steps = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
  let step = 0;
  for (; Math.abs(value) >= 1000 && step + 1 < steps.length; ++step) value /= 1000;
  const text = String(Number(value.toPrecision(3)));
  return steps[step] || unit ? `${text} ${steps[step]}${unit}`.trim() : text;
}
const bytesText = (value) => compact(value, 'B');
const short = (value) => (value === undefined ? '–' : String(Number(value.toPrecision(4))));
const duration = (seconds) =>
    (seconds < 120 ? `${short(seconds)} s` :
         seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` :
                          `${(seconds / 3600).toFixed(1)} h`);
const percentText = (value) => `${short(value)} %`;
const textOf = (measure) => (measure.share ? percentText : short);
const costText = (name) => (name.startsWith('bytes') ? bytesText : name.endsWith('seconds') ? duration : compact);
const orDash = (value, text) => (value == null ? '–' : text(value));
const plusMinus = (text, {y, low, high}) =>
    (y === undefined       ? '–' :
         low === undefined ? text(y) :
                             `${text(y)} ± ${text((high - low) / 2)}`);
