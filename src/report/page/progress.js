// The sections of scores and of training: quantities over rounds, or over what had been spent.
'use strict';
const kSpent = {
  round: ['round', String],
  bytes: ['bytes up and down', bytesText],
  flops: ['FLOPs', compact],
  seconds: ['measured seconds', duration],
  simulated_seconds: ['simulated time', duration]
};
// Returns what had been spent after a round; undefined if it is not known.
function spentAt(spent, key) {
  const places = new Map(spent.round.map((round, i) => [round, i]));
  return (round) => (places.has(round) ? spent[key][places.get(round)] ?? undefined : undefined);
}
// Curves as series of a chart: means at the mean of what the runs of the arm had spent.
function curveSeries(curves, key, as = (value) => value ?? undefined) {
  const known = ({x, y}) => x !== undefined && y !== undefined;
  return curves
      .map((curve) => {
        const group = groups[curve.arm], ofArm = spentAt(group.spent, key);
        return {
          name: curve.name,
          ...looksOf(curve),
          points: curve.round
                      .map((round, i) => ({
                             x: ofArm(round),
                             y: as (curve.mean[i]),
                             low: as (curve.low[i]),
                             high: as (curve.high[i]),
                             n: curve.n[i]
                           }))
                      .filter(known),
          thin: curve.runs.map((values, run) => {
            const ofRun = spentAt(group.runs[run].spent, key);
            return values.map((value, i) => ({x: ofRun(curve.round[i]), y: as (value)})).filter(known);
          })
        };
      })
      .filter((one) => one.points.length);
}
function progressCharts(body, measure) {
  const {over_budgets: overall, by_budget: byBudget} = data.progress.find((one) => one.measure === measure.name);
  const as = shownAs(measure), row = rowOf(body);
  for (const [key, [title, text]] of Object.entries(kSpent)) {
    const series = curveSeries(overall, key, as);
    if (series.length && (key !== 'round' || series.some((one) => one.points.length > 1)))
      linesChart(row, {
        title: `${measure.title} against ${title}`,
        note: 'mean over tasks and budgets, in the run',
        x: {title, text, whole: key === 'round'},
        y: axisOf(measure),
        series
      });
  }
  if (byBudget.length < 2 || !overall.some((curve) => curve.round.length > 1)) return;
  element('h3', body, 'Each budget');
  const facets = rowOf(body, true);
  byBudget.forEach((curves, i) => linesChart(facets, {
                     title: budgetTitles[i],
                     small: true,
                     x: {title: 'round', whole: true},
                     y: axisOf(measure),
                     series: curveSeries(curves, 'round', as)
                   }));
}
function progressSection() {
  const section = sectionOf('progress');
  section.hidden = !views.length;
  if (!views.length) return;
  if (groups.length > 1) differencesNote(section);
  const controls = element('div', section, undefined, {class: 'controls'});
  const measure = chooser(controls, 'Measure', measures.map(({name, title}) => [name, title]), data.endpoint);
  const body = element('div', section);
  const draw = () => {
    body.replaceChildren();
    progressCharts(body, measureOf(measure.value));
  };
  measure.onchange = draw;
  draw();
}

// --- training ---
const kMetrics = {
  idle_share: 'share of idle experts',
  pg_share: 'share of experts with a pseudo-gradient',
  pg_norm: 'norm of a pseudo-gradient, after clipping',
  pg_clipped: 'share of pseudo-gradients that were clipped'
};
const quantityOf = (name) => data.training.find((one) => one.name === name);
function byRoundChart(parent, title, y, name) {
  const quantity = quantityOf(name);
  if (quantity)
    linesChart(parent, {title, x: {title: 'round', whole: true}, y, series: curveSeries(quantity.curves, 'round')});
}
function trainingSection() {
  const row = rowOf(sectionOf('training'));
  byRoundChart(row, 'Training loss', {title: 'nats per target token, logarithmic', log: true}, 'loss');
  byRoundChart(row, 'Experts per token', {title: 'mean over tokens and clients', span: 1}, 'experts_per_token');
  for (const {name} of data.training.filter((one) => one.name.startsWith('metrics.'))) {
    const metric = name.slice('metrics.'.length);
    byRoundChart(row, kMetrics[metric] || metric.replaceAll('_', ' '), {title: metric}, name);
  }
  byRoundChart(row, 'Privacy budget spent', {title: 'epsilon of all rounds so far'}, 'epsilon');
  byRoundChart(
      row, 'Signal beside the noise of privacy', {title: 'times the noise; below 0.1 it is mostly noise'}, 'signal');
}
