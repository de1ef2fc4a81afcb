// The sections of the page, in the order in which they are read.
'use strict';
const sectionOf = (id) => document.getElementById(id);
const rowOf = (parent, small) => element('div', parent, undefined, {class: small ? 'row small' : 'row'});
const percentText = (value) => `${short(value)} %`;
const textOf = (measure) => (isShare(measure) ? percentText : short);
const axisOf = (measure) => ({
  title: `${kMeasures[measure]}, ${unitOf(measure)}`,
  text: textOf(measure),
  ...(isShare(measure) ? {span: 10, bounds: [0, 100]} : {span: 0.1})
});
const looksOf = (group, mode) => ({colour: group.colour, marker: group.marker, dash: mode === 'a' ? '6 4' : undefined});
const seriesName = (group, mode) => (mode ? `${nameOf(group)}, mode ${mode}` : nameOf(group));

function headerSection() {
  const names = groups.map((group) => group.name);
  const title = study ? `study ${study.name}` : names.length < 4 ? names.join(', ') : `${names.length} arms`;
  document.title = `evenkeel report: ${title}`;
  const seeds = ascending(runs.map((run) => run.seed));
  sectionOf('about').textContent =
      `${title[0].toUpperCase()}${title.slice(1)}: ${runs.length} run${runs.length > 1 ? 's' : ''}, ` +
      `seed${seeds.length > 1 ? 's' : ''} ${seeds.join(', ')}, base model ${
          unique(runs.map((run) => run.model)).join(', ')}. ` +
      'Lines are means over seeds, thin lines single seeds, bands and bars 95 % intervals.';
  for (const section of document.querySelectorAll('main section:not([hidden])'))
    element(
        'a', element('li', sectionOf('contents')), section.querySelector('h2').textContent, {href: `#${section.id}`});
}

function differencesSection() {
  const section = sectionOf('differences');
  section.hidden = !differences.length;
  if (!differences.length) return;
  element('p', section, 'Their figures may differ for these reasons too.');
  table(
      section, ['differs', 'value', 'runs'],
      differences.flatMap(
          ({what, sides}) => sides.map(({value, runs: labels}, i) => [i ? '' : what, value, labels.join(', ')])),
      {caption: 'Differences between the runs', wrap: true});
}

// --- comparison by budget ---
const armsOf = (routing) => groups.flatMap((group) => modes(group, routing).map((mode) => ({group, mode})));
function byBudgetSeries(at) {
  return armsOf(at.routing)
      .map(({group, mode}) => ({
             name: seriesName(group, mode),
             ...looksOf(group, mode),
             points: budgets.flatMap((budget) => {
               const values = ofSeeds(group, (run) => scoreOf(run, {...at, mode, budget}));
               return values.length ? [{x: budget, ...summary(values)}] : [];
             }),
             thin: group.runs.length < 2 ?
                 [] :
                 group.runs.map(
                     (run) => budgets.map((budget) => ({x: budget, y: scoreOf(run, {...at, mode, budget})}))
                                  .filter((point) => point.y !== undefined)),
           }))
      .filter((one) => one.points.length);
}
function levelSeries(measure, task) {
  if (measure !== 'accuracy' && measure !== 'accuracy_valid' && measure !== 'accuracy_likelihood') return [];
  return [['chance', 'chance', '2 4'], ['majority', 'majority answer', '8 3']]
      .map(([key, name, dash]) => ({
             name,
             level: true,
             dash,
             colour: 'var(--faint)',
             points: levelOf(key, task) === undefined ? [] :
                                                        budgets.map((budget) => ({x: budget, y: levelOf(key, task)}))
           }))
      .filter((one) => one.points.length);
}
function differencesOf(at) {
  const baseMode = modes(reference, at.routing).includes('b') ? 'b' : modes(reference, at.routing)[0];
  return armsOf(at.routing).filter(({group}) => group !== reference).flatMap(({group,
                                                                               mode}) => budgets.flatMap((budget) => {
    const found = pairedDifferences(group, (run, which) => scoreOf(run, {...at, mode: which, budget}), baseMode, mode);
    return found.length ? [{
      name: `${seriesName(group, mode)}, ${budgetName(budget)}`,
      arm: seriesName(group, mode),
      budget: budgetName(budget),
      ...looksOf(group),
      ...summary(found)
    }] :
                          [];
  }));
}
// Says of each arm at which budgets its interval is above or below zero.
function shownByArm(shown, measure) {
  const isBetter = (item) => (lessIsBetter(measure) ? item.high < 0 : item.low > 0);
  const budgetsOf = (arm, better) =>
      shown.filter((item) => item.arm === arm && isBetter(item) === better).map((item) => item.budget);
  return unique(shown.map((item) => item.arm))
      .map((arm) => {
        const parts = [[true, 'better'], [false, 'worse']]
                          .map(([better, word]) => [word, budgetsOf(arm, better)])
                          .filter(([, found]) => found.length)
                          .map(([word, found]) => `${word} at ${found.join(', ')}`);
        return `${arm}: ${parts.join(' and ')}`;
      })
      .join('; ');
}
function conclusionOf(items, measure) {
  if (!items.length) return groups.length > 1 ? 'No seed was run by both sides, so nothing is compared.' : '';
  if (items.every((item) => item.n < 2))
    return 'Every comparison rests on one seed. A difference of one seed shows nothing: run others, or a study (evenkeel study).';
  const shown = items.filter((item) => item.low > 0 || item.high < 0);
  if (!shown.length) return `No difference to ${reference.name} is shown: all ${items.length} intervals hold zero.`;
  return `The interval excludes zero for ${shown.length} of ${items.length} comparisons with ${reference.name}. ` +
      `${shownByArm(shown, measure)}. ` +
      'They are not corrected for their number; evenkeel report prints corrected values.';
}
function fullTable(parent, at) {
  const arms = armsOf(at.routing);
  const cell = (group, mode, budget, task) => {
    const values = ofSeeds(group, (run) => scoreOf(run, {...at, task, mode, budget}));
    return values.length ? plusMinus(at.measure, summary(values)) : '–';
  };
  const named = tasks.filter((task) => measuresOf(task).includes(at.measure));
  const countOf = (task, key) => (scores.find((e) => e.task === task) || {})[key] || '–';
  const row = (name, task) =>
      [name, ...arms.flatMap(({group, mode}) => budgets.map((budget) => cell(group, mode, budget, task))),
       ...(task ? [countOf(task, 'rows'), countOf(task, 'questions')] : ['', ''])];
  table(
      parent, ['task', ...arms.flatMap(() => budgets.map(budgetName)), 'rows', 'questions'],
      [...named.map((task) => row(task, task)), row('mean', '')], {
        lastIsMean: true,
        caption: `${kMeasures[at.measure]}, last evaluated round`,
        groupTitles: [['', 1], ...arms.map(({group, mode}) => [seriesName(group, mode), budgets.length]), ['', 2]]
      });
}
function chooser(parent, name, options) {
  const holder = element('label', parent, name);
  const select = element('select', holder);
  select.offer = (offered) => {
    const chosen = select.value;
    select.replaceChildren();
    for (const [value, text] of offered) element('option', select, text, {value});
    if (offered.some(([value]) => value === chosen)) select.value = chosen;
  };
  select.offer(options);
  return select;
}
function comparisonSection() {
  const section = sectionOf('comparison');
  if (!tasks.length) return void element('p', section, 'Nothing is evaluated yet.', {class: 'note'});
  const controls = element('div', section, undefined, {class: 'controls'});
  const task = chooser(controls, 'Task', [['', 'mean over tasks'], ...tasks.map((name) => [name, name])]);
  const measure = chooser(controls, 'Measure', measuresOf('').map((key) => [key, kMeasures[key]]));
  const routing = chooser(controls, 'Routing', routings.map((name) => [name, name]));
  if (routings.length < 2) routing.parentNode.hidden = true;
  const body = element('div', section);
  const draw = () => {
    const at = {task: task.value, measure: measure.value, routing: routing.value};
    body.replaceChildren();
    const items = differencesOf(at);
    const conclusion = conclusionOf(items, at.measure);
    if (conclusion) element('p', body, conclusion, {class: 'conclusion', role: 'status'});
    const row = rowOf(body);
    const x = {title: 'experts per token (budget)', values: budgets, text: budgetName};
    linesChart(row, {
      title: `${kMeasures[at.measure]} by budget`,
      note: at.task || 'mean over tasks',
      x,
      y: axisOf(at.measure),
      series: [...byBudgetSeries(at), ...levelSeries(at.measure, at.task)]
    });
    forestChart(row, {
      title: `Difference to ${reference.name}, seed by seed`,
      note: 'bars: 95 % interval of the paired difference (t)',
      items,
      text: (value) => `${value > 0 ? '+' : ''}${short(value)}`,
      xTitle: isShare(at.measure) ? 'percentage points' : unitOf(at.measure),
      span: isShare(at.measure) ? 4 : 0.1
    });
    const named = tasks.filter((name) => measuresOf(name).includes(at.measure));
    if (!at.task && named.length > 1) {
      element('h3', body, 'Each task');
      const facets = rowOf(body, true);
      for (const name of named)
        linesChart(facets, {
          title: name,
          x,
          y: axisOf(at.measure),
          small: true,
          series: [...byBudgetSeries({...at, task: name}), ...levelSeries(at.measure, name)]
        });
    }
    fullTable(body, at);
  };
  task.onchange = () => {
    measure.offer(measuresOf(task.value).map((key) => [key, kMeasures[key]]));
    draw();
  };
  measure.onchange = routing.onchange = draw;
  draw();
}

// --- runs ---
function runsSection() {
  table(
      sectionOf('runs'),
      [
        'run', 'arm', 'method', 'seed', 'rounds', 'last loss', 'tokens', 'bytes up', 'bytes down', 'FLOPs', 'seconds',
        'simulated'
      ],
      runs.map(
          (run) =>
              [run.label, groupOf(run), run.method, run.seed, run.rounds.length,
               run.rounds.length ? last(run.rounds).loss.toFixed(4) : '–', compact(total(run, 'tokens')),
               bytesText(total(run, 'bytes_up')), bytesText(total(run, 'bytes_down')), compact(total(run, 'flops')),
               run.rounds.every((round) => 'wall' in round) ? duration(total(run, 'wall')) : '–',
               run.rounds.length && 'seconds' in last(run.rounds) ? duration(last(run.rounds).seconds) : '–']),
      {caption: 'Runs and what they took'});
}

// --- a quantity of a round, over rounds or over what had been spent ---
// What had been spent after each round, and before the first.
function spentBy(run) {
  const simulated = run.rounds.some((round) => 'seconds' in round);
  const spent = new Map([[0, {round: 0, bytes: 0, flops: 0, wall: 0, seconds: simulated ? 0 : NaN}]]);
  let [bytes, flops, wall] = [0, 0, 0];
  for (const round of run.rounds) {
    bytes += round.bytes_up + round.bytes_down;
    flops += round.flops;
    wall = 'wall' in round ? wall + round.wall : NaN;
    spent.set(round.round, {round: round.round, bytes, flops, wall, seconds: round.seconds ?? NaN});
  }
  return spent;
}
const kSpent = {
  round: ['round', String],
  bytes: ['bytes up and down', bytesText],
  flops: ['FLOPs', compact],
  wall: ['measured seconds', duration],
  seconds: ['simulated time', duration]
};
// pick: run -> [[round, value]]. Points of one round are averaged over seeds, at the mean of what they had spent.
function overRounds(key, pick) {
  return groups
      .map((group) => {
        const lines = group.runs.map((run) => {
          const spent = spentBy(run);
          return pick(run)
              .filter(([round, y]) => spent.has(round) && y !== undefined && Number.isFinite(spent.get(round)[key]))
              .map(([round, y]) => ({round, x: spent.get(round)[key], y}));
        });
        const rounds = ascending(lines.flat().map((point) => point.round));
        const points = rounds.map((round) => {
          const found = lines.flat().filter((point) => point.round === round);
          return {x: mean(found.map((point) => point.x)), ...summary(found.map((point) => point.y))};
        });
        return {name: nameOf(group), ...looksOf(group), points, thin: group.runs.length > 1 ? lines : []};
      })
      .filter((one) => one.points.length);
}
function byRoundChart(parent, title, y, pick) {
  const series = overRounds('round', (run) => run.rounds.map((round) => [round.round, pick(round)]));
  if (series.length) linesChart(parent, {title, x: {title: 'round', whole: true}, y, series});
}
function progressSection() {
  const section = sectionOf('progress');
  const measure = scores.some((e) => 'accuracy' in e) ? 'accuracy' : scores.some((e) => 'f1' in e) ? 'f1' : 'nll';
  const rounds = (run) => ascending(run.evaluations.map((e) => e.round));
  const modeOf = (run) => (run.evaluations.some((e) => e.reading === 'b') ? 'b' : '');
  const overall = (run) =>
      rounds(run).map((round) => [round, meanOverBudgets(run, {measure, round, mode: modeOf(run)})]);
  const row = rowOf(section);
  for (const [key, [title, text]] of Object.entries(kSpent)) {
    const series = tasks.length ? overRounds(key, overall) : [];
    if (series.length && (key !== 'round' || series.some((one) => one.points.length > 1)))
      linesChart(row, {
        title: `${kMeasures[measure]} against ${title}`,
        note: 'mean over tasks and budgets',
        x: {title, text, whole: key === 'round'},
        y: axisOf(measure),
        series
      });
  }
  if (runs.some((run) => rounds(run).length > 1)) {
    element('h3', section, 'Each budget');
    const facets = rowOf(section, true);
    for (const budget of budgets)
      linesChart(facets, {
        title: budgetName(budget),
        small: true,
        x: {title: 'round', whole: true},
        y: axisOf(measure),
        series: overRounds(
            'round',
            (run) => rounds(run).map((round) => [round, scoreOf(run, {measure, round, budget, mode: modeOf(run)})]))
      });
  }
}

// --- clients ---
// Percent, or a negative log-likelihood, of which less is better.
const headline = (e) => ('nll' in e ? e.nll : 100 * ('accuracy' in e ? e.accuracy : e.f1));
const scoreText = (e) => (e ? headline(e).toFixed('nll' in e ? 3 : 1) : '–');
const questionsOf = (e) => Math.max(1, e.questions || e.rows);
const gainOf = (from, to) => (from && to ? (headline(to) - headline(from)) * ('nll' in to ? -1 : 1) : undefined);
const signed = (gain, e) => (gain === undefined ? '–' : (gain > 0 ? '+' : '') + gain.toFixed('nll' in e ? 3 : 1));
const direction = (gain, e) => (Math.abs(gain) <= ('nll' in e ? 0 : 100 / questionsOf(e) + 1e-9) ? 0 : Math.sign(gain));
// One entry per client, task and mode, the largest gain first.
function clientResults(run) {
  const latest = Math.max(-1, ...run.ofClients.map((e) => e.round));
  const found = new Map();
  for (const e of run.ofClients.filter(({round}) => round === 0 || round === latest)) {
    const key = JSON.stringify([e.task, e.reading, e.client]);
    const one = found.get(key) || {key, e, who: e.client_name ? `${e.client} (${e.client_name})` : String(e.client)};
    found.set(key, one);
    if (e.rows_of === 'all' && e.round === latest) one.all = e;
    if (e.rows_of === 'own' && e.round === latest) one.own = e;
    if (e.rows_of === 'own' && e.round === 0 && latest > 0) one.before = e;
  }
  const order = (one) =>
      gainOf(one.before, one.own) ?? (one.own ? headline(one.own) * ('nll' in one.own ? -1 : 1) : -Infinity);
  return [...found.values()].sort((x, y) => order(y) - order(x));
}
function gainsChart(section, title, pairs, colour) {
  const signs = pairs.map(({gain, own}) => direction(gain, own));
  const many = (sign) => signs.filter((one) => one === sign).length;
  element(
      'p', section, `Own test rows: ${many(1)} gain, ${many(-1)} lose, ${many(0)} within one question.`,
      {class: 'note'});
  forestChart(rowOf(section), {
    title,
    xTitle: 'points on own rows',
    items: pairs.slice(0, 60).map(
        ({who, e, gain}) => ({name: `client ${who}, ${budgetName(e.budget)}`, y: gain, n: 1, colour, marker: 1}))
  });
}
function clientsOfRun(section, run) {
  const results = clientResults(run);
  if (!results.length) return;
  element('h3', section, run.label);
  const compared =
      results.filter((one) => one.before && one.own).map((one) => ({...one, gain: gainOf(one.before, one.own)}));
  const group = groups.find((one) => one.runs.includes(run));
  if (compared.length) gainsChart(section, `${run.label}: gain since before the first round`, compared, group.colour);
  table(
      section,
      ['client', 'budget', 'task', 'mode', 'own before', 'own now', 'gain', 'all rows', 'own rows', 'questions'],
      results.map(
          ({who, e, before, own, all}) =>
              [who, e.budget, e.task, e.reading || '', scoreText(before), scoreText(own),
               signed(gainOf(before, own), own), scoreText(all), own ? own.rows : '–', own ? questionsOf(own) : '–']),
      {caption: `Clients of ${run.label}`});
}
// Own rows of two runs or more, and of each mode of a rank method, against the first.
function clientsSideBySide(section) {
  const sides = runs.flatMap((run) => {
    const own = clientResults(run).filter((one) => one.own);
    return unique(own.map(({e}) => e.reading)).sort().map((mode) => ({
                                                            label: mode ? `${run.label} (${mode})` : run.label,
                                                            run,
                                                            results: own.filter(({e}) => e.reading === mode)
                                                          }));
  });
  const [first, ...others] = runs.length > 1 ? sides : [];
  for (const other of others) {
    const that = (one) => other.results.find(({e}) => e.client === one.e.client && e.task === one.e.task);
    const pairs = first.results.filter(that)
                      .map((one) => ({...one, gain: gainOf(one.own, that(one).own)}))
                      .sort((x, y) => y.gain - x.gain);
    if (!pairs.length) continue;
    element('h3', section, `${other.label} against ${first.label}`);
    gainsChart(
        section, `${other.label} against ${first.label}, client by client`, pairs,
        groups.find((one) => one.runs.includes(other.run)).colour);
  }
}
function clientsSection() {
  const section = sectionOf('clients');
  section.hidden = !runs.some((run) => run.ofClients.length);
  if (section.hidden) return;
  runs.forEach((run) => clientsOfRun(section, run));
  clientsSideBySide(section);
}

// --- training ---
const kMetrics = {
  idle_share: 'share of idle experts',
  pg_share: 'share of experts with a pseudo-gradient',
  pg_norm: 'norm of a pseudo-gradient, after clipping',
  pg_clipped: 'share of pseudo-gradients that were clipped'
};
function trainingSection() {
  const row = rowOf(sectionOf('training'));
  byRoundChart(row, 'Training loss', {title: 'nats per target token, logarithmic', log: true}, (round) => round.loss);
  byRoundChart(
      row, 'Experts per token', {title: 'mean over tokens and clients', span: 1},
      (round) => round.experts_per_token || undefined);
  const names = unique(runs.flatMap((run) => run.rounds.flatMap((round) => Object.keys(round.metrics || {}))));
  for (const name of names)
    byRoundChart(
        row, kMetrics[name] || name.replaceAll('_', ' '), {title: name}, (round) => (round.metrics || {})[name]);
}

// --- experts ---
function utilisationMaps(section) {
  const framesOf = (run) => run.rounds.filter((round) => round.utilization);
  const shownRuns = groups.map((group) => group.runs.find((run) => framesOf(run).length)).filter(Boolean).slice(0, 8);
  const rounds = ascending(shownRuns.flatMap((run) => framesOf(run).map((round) => round.round)));
  const most = Math.max(...shownRuns.flatMap((run) => framesOf(run).flatMap((round) => round.utilization.flat()))) || 1;
  const controls = element('div', section, undefined, {class: 'controls'});
  const holder = element('label', controls, 'Round');
  const slider =
      element('input', holder, undefined, {type: 'range', min: 0, max: rounds.length - 1, value: rounds.length - 1});
  const shown = element('output', holder);
  const body = element('div', section);
  const mapOf = (run, round) => framesOf(run).filter((frame) => frame.round <= round).pop() || framesOf(run)[0];
  const draw = () => {
    const round = rounds[slider.value];
    shown.textContent = round;
    body.replaceChildren();
    const row = rowOf(body);
    const first = shownRuns.find((run) => reference.runs.includes(run)) || shownRuns[0];
    for (const run of shownRuns) {
      const frame = mapOf(run, round);
      heatChart(row, {
        title: `Utilisation, ${run.label}`,
        note: 'share of tokens that chose an expert; one scale for all maps',
        map: frame.utilization,
        range: [0, most],
        layers: frame.utilization.map((_, l) => String(l))
      });
      if (run === first) continue;
      const base = mapOf(first, round);
      if (base.utilization.length !== frame.utilization.length ||
          base.utilization[0].length !== frame.utilization[0].length)
        continue;
      const map = frame.utilization.map((layer, l) => layer.map((value, e) => value - base.utilization[l][e]));
      const bound = Math.max(1e-9, ...map.flat().map(Math.abs));
      heatChart(row, {
        title: `${run.label} minus ${first.label}`,
        note: 'blue: more use',
        map,
        range: [-bound, bound],
        layers: map.map((_, l) => String(l)),
        diverging: true
      });
    }
  };
  slider.onchange = draw;
  draw();
}
function phiCharts(section) {
  const withPhi = runs.filter((run) => run.rounds.some((round) => round.phi_correlation));
  if (!withPhi.length) return;
  element('h3', section, 'Phi against utilisation');
  const row = rowOf(section);
  for (const [key, title] of [
           ['pearson', 'Correlation of phi and utilisation (Pearson)'],
           ['spearman', 'Correlation of phi and utilisation (Spearman)'], ['slope', 'Slope of phi over utilisation']])
    byRoundChart(
        row, title, {title: key, ...(key === 'slope' ? {} : {span: 0.2, bounds: [-1, 1]})},
        (round) => (round.phi_correlation || {})[key]);
  for (const group of groups) {
    const run = group.runs.find((one) => withPhi.includes(one));
    const round = run && run.rounds.filter((one) => one.phi && one.utilization).pop();
    if (!round) continue;
    const points =
        round.phi.flatMap((layer, l) => layer.map((y, e) => ({layer: l, expert: e, x: round.utilization[l][e], y})));
    const {pearson, spearman, slope, intercept} = round.phi_correlation;
    scatterChart(row, {
      title: `Phi and utilisation, ${run.label}`,
      note: `round ${round.round}, ${points.length} experts: Pearson ${short(pearson)}, Spearman ${
          short(spearman)}, slope ${short(slope)}`,
      x: 'utilisation',
      y: 'phi',
      points,
      line: {slope, intercept},
      colour: group.colour
    });
  }
}
function expertsSection() {
  const section = sectionOf('experts');
  section.hidden = !runs.some((run) => run.rounds.some((round) => round.utilization));
  if (section.hidden) return;
  utilisationMaps(section);
  const row = rowOf(section);
  byRoundChart(
      row, 'Entropy of utilisation', {title: 'nats, mean over layers', span: 0.05}, (round) => round.entropy_mean);
  byRoundChart(
      row, 'Gini coefficient of utilisation', {title: 'mean over layers', span: 0.05, bounds: [0, 1]},
      (round) => round.gini_mean);
  byRoundChart(
      row, 'Dead experts', {title: 'experts that no token chose, all layers', zero: true, span: 1},
      (round) => round.dead_experts);
  phiCharts(section);
}

const kExplained = {
  'budget, K':
      'The share of the checkpoint\'s experts per token that a client activates. K is the number of experts per token.',
  accuracy: 'Correct answers over all rows. An answer that cannot be read counts as wrong.',
  'unreadable answers': 'Share of rows whose output holds none of the allowed answers.',
  'accuracy by likelihood':
      'Share of rows whose correct answer is the likeliest of the allowed ones. Nothing is generated.',
  'log-likelihood of the correct answer': 'Natural logarithm, mean over rows. It moves before accuracy does.',
  'chance, majority answer': 'What guessing gives, and what always giving the most frequent answer gives.',
  '95 % interval': 'Of the mean over seeds, by Student\'s t. It says nothing about other questions or other models.',
  'paired difference':
      'The arm minus the reference with the same seed, averaged over seeds. Data, partition and initial adapter are equal within a pair.',
  'mode a, mode b':
      'Two ways of a rank method to meet a budget: a cuts the adapter to the client\'s rank, b keeps it and uses K experts.',
  'exported':
      'The exported adapter as other programs route it. Phi and the gating rule are no part of an adapter file.',
  utilisation: 'Share of tokens that chose an expert, weighted by clients. It sums to the mean K over a layer.',
  'entropy, Gini': 'How evenly a layer uses its experts. Entropy is highest, and Gini 0, when all are used alike.',
  'dead experts': 'Experts that no token of the round chose.',
  phi: 'UB-SMoE\'s term that is added to router scores: positive for experts that are used too little.',
  'FLOPs': 'Two per multiply-add, forward and backward, without weight gradients of frozen layers.',
};
function measuresSection() {
  const list = element('dl', sectionOf('measures'));
  for (const [name, text] of Object.entries(kExplained)) {
    element('dt', list, name);
    element('dd', list, text);
  }
}
function configsSection() {
  for (const run of runs) {
    const details = element('details', sectionOf('configs'));
    element('summary', details, `${run.label} (evenkeel ${run.version})`);
    element('pre', details, run.config);
  }
}

for (const draw
         of [differencesSection, comparisonSection, runsSection, progressSection, clientsSection, trainingSection,
             expertsSection, costSection, measuresSection, configsSection, headerSection])
  draw();
