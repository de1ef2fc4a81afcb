// The section of experts: maps of their use, how even it is, and phi against it.
'use strict';
const layersOf = (map) => map.map((_, layer) => String(layer));
function mapsAt(body, round) {
  const row = rowOf(body), {maps} = data.experts;
  const most = largest([1e-9, ...maps.flatMap(({frames}) => frames.flatMap((frame) => frame.utilization.flat()))]);
  for (const {label: name, frames} of maps) {
    const frame = frames.filter((one) => one.round <= round).pop() || frames[0];
    const note = `round ${frame.round}`;
    heatChart(row, {
      title: `Utilisation, ${name}`,
      note: `${note}; one scale for all maps`,
      map: frame.utilization,
      range: [0, most],
      layers: layersOf(frame.utilization)
    });
    const minus = frame.minus_first;
    if (!minus) continue;
    const bound = largest([1e-9, ...minus.flat().map(Math.abs)]);
    heatChart(row, {
      title: `${name} minus ${maps[0].label}`,
      note: `${note}; blue: more use`,
      map: minus,
      range: [-bound, bound],
      layers: layersOf(minus),
      diverging: true
    });
  }
}
function utilisationMaps(section) {
  const rounds = ascending(data.experts.maps.flatMap(({frames}) => frames.map(({round}) => round)));
  const controls = element('div', section, undefined, {class: 'controls'});
  const holder = element('label', controls, 'Round');
  const slider =
      element('input', holder, undefined, {type: 'range', min: 0, max: rounds.length - 1, value: rounds.length - 1});
  const shown = element('output', holder);
  const body = element('div', section);
  const draw = () => {
    shown.textContent = rounds[slider.value];
    body.replaceChildren();
    mapsAt(body, rounds[slider.value]);
  };
  slider.onchange = draw;
  draw();
}
function phiCharts(section) {
  if (!data.experts.phi.length) return;
  element('h3', section, 'Phi against utilisation');
  const row = rowOf(section), range = {span: 0.2, bounds: [-1, 1]};
  byRoundChart(row, 'Correlation of phi and utilisation (Pearson)', {title: 'pearson', ...range}, 'pearson');
  byRoundChart(row, 'Correlation of phi and utilisation (Spearman)', {title: 'spearman', ...range}, 'spearman');
  byRoundChart(row, 'Slope of phi over utilisation', {title: 'slope'}, 'slope');
  for (const {arm, label: name, round, phi, utilization, pearson, spearman, slope, intercept} of data.experts.phi) {
    const points = phi.flatMap((layer, l) => layer.map((y, e) => ({layer: l, expert: e, x: utilization[l][e], y})));
    scatterChart(row, {
      title: `Phi and utilisation, ${name}`,
      note: `round ${round}, ${points.length} experts: Pearson ${short(pearson)}, Spearman ${short(spearman)}, slope ${
          short(slope)}`,
      x: 'utilisation',
      y: 'phi',
      points,
      line: {slope, intercept},
      colour: groups[arm].colour
    });
  }
}
function expertsSection() {
  const section = sectionOf('experts');
  section.hidden = !data.experts.maps.length;
  if (section.hidden) return;
  if (data.experts.maps.length > 1) differencesNote(section);
  utilisationMaps(section);
  const row = rowOf(section);
  byRoundChart(row, 'Entropy of utilisation', {title: 'nats, mean over layers', span: 0.05}, 'entropy_mean');
  byRoundChart(
      row, 'Gini coefficient of utilisation', {title: 'mean over layers', span: 0.05, bounds: [0, 1]}, 'gini_mean');
  byRoundChart(
      row, 'Dead experts', {title: 'experts that no token chose, all layers', zero: true, span: 1}, 'dead_experts');
  phiCharts(section);
}
