'use strict';
(() => {
  const { runs, differences } = JSON.parse(document.getElementById('data').textContent);
  // Scores of single clients have a section of their own.
  for (const run of runs) {
    run.ofClients = run.evaluations.filter((e) => 'client' in e);
    run.evaluations = run.evaluations.filter((e) => !('client' in e));
  }
  const colours = ['#2563eb', '#dc2626', '#059669', '#d97706', '#7c3aed', '#0891b2', '#be185d', '#4d7c0f'];
  const colour = (i) => colours[i % colours.length];
  const unique = (values) => [...new Set(values)];
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const percent = (value) => (value === undefined ? '–' : (100 * value).toFixed(1));

  function compact(value) {
    const units = ['', ' k', ' M', ' G', ' T', ' P', ' E'];
    let unit = 0;
    for (; Math.abs(value) >= 1000 && unit + 1 < units.length; ++unit) value /= 1000;
    return (unit || value % 1 ? value.toPrecision(4) : String(value)) + units[unit];
  }

  function element(tag, parent, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    parent.append(made);
    return made;
  }

  // groups: [title, columns] pairs over the titles.
  function table(parent, titles, rows, lastIsMean, groups) {
    const made = element('table', element('div', parent, undefined, 'scroll'));
    const head = element('thead', made);
    const over = groups && element('tr', head);
    for (const [title, columns] of groups || []) element('th', over, title, 'group').colSpan = columns;
    const under = element('tr', head);
    for (const title of titles) element('th', under, title);
    const body = element('tbody', made);
    rows.forEach((cells, i) => {
      const row = element('tr', body, undefined, lastIsMean && i === rows.length - 1 ? 'mean' : '');
      for (const cell of cells) element('td', row, cell);
    });
    return made.parentNode;
  }

  // tick: the text of a quantity, whose axis then begins at zero. over: the same of an x that is a quantity; data are then { x, y }.
  function lines(parent, title, xTitle, yTitle, labels, datasets, tick, over) {
    const canvas = element('canvas', element('div', parent, undefined, 'chart'));
    return new Chart(canvas, {
      type: 'line',
      data: { labels, datasets },
      options: {
        animation: false, maintainAspectRatio: false, spanGaps: true,
        interaction: { mode: over ? 'nearest' : 'index', intersect: false },
        plugins: { title: { display: true, text: title } },
        scales: {
          x: { title: { display: true, text: xTitle }, ...(over && { type: 'linear', beginAtZero: true, ticks: { callback: over } }) },
          y: { title: { display: true, text: yTitle }, beginAtZero: Boolean(tick), ticks: tick ? { callback: tick } : {} },
        },
      },
    });
  }

  const line = (label, data, i, dashed) => ({
    label, data, borderColor: colour(i), backgroundColor: colour(i), borderWidth: dashed ? 1.5 : 2,
    borderDash: dashed ? [5, 4] : [], pointRadius: dashed ? 0 : 3, tension: 0,
  });

  // --- what is not alike ---
  function differencesSection() {
    const section = document.getElementById('differences');
    section.hidden = !differences.length;
    table(section, ['differs', 'value', 'runs'], differences.flatMap(({ what, sides }) =>
      sides.map(({ value, runs: labels }, i) => [i ? '' : what, value, labels.join(', ')])));
  }

  // --- runs ---
  const total = (run, key) => run.rounds.reduce((sum, round) => sum + round[key], 0);
  table(document.getElementById('runs'),
    ['run', 'method', 'seed', 'base model', 'rounds', 'last loss', 'tokens', 'bytes up', 'bytes down', 'FLOPs'],
    runs.map((run) => {
      const last = run.rounds[run.rounds.length - 1];
      return [run.label, run.method, run.seed, run.model, run.rounds.length, last ? last.loss.toFixed(4) : '–',
        compact(total(run, 'tokens')), compact(total(run, 'bytes_up')), compact(total(run, 'bytes_down')),
        compact(total(run, 'flops'))];
    }));

  // --- accuracy ---
  // With a rank method "at budget beta" has two readings, and a run's adapter may be served otherwise than the run
  // routes: each is a line of its own.
  const aspect = (e) => [e.reading, e.as_exported && `exported: ${e.served_by.replace('_', ' ')}`].filter(Boolean).join(', ');
  const scored = runs.flatMap((run) => unique(run.evaluations.map(aspect)).map((name) => ({
    label: name ? `${run.label} (${name})` : run.label,
    evaluations: run.evaluations.filter((e) => aspect(e) === name),
  })));
  const lastEvaluated = (run) => Math.max(-1, ...run.evaluations.map((e) => e.round));
  const tasks = unique(runs.flatMap((run) => run.evaluations.map((e) => e.task)));
  const budgets = unique(runs.flatMap((run) => run.evaluations.map((e) => e.budget))).sort((a, b) => a - b);
  const choiceMeasures = {
    accuracy: 'accuracy (percent of all rows)', invalid_rate: 'answers that cannot be read',
    accuracy_valid: 'accuracy among readable answers', accuracy_likelihood: 'accuracy by likelihood',
  };
  const textMeasures = {
    exact_match: 'free text: exact match', f1: 'free text: F1 of words', bert_score: 'free text: BERTScore F1',
    empty_rate: 'free text: empty answers',
  };
  const likelihoodMeasures = { nll: 'negative log-likelihood of a token of the answers', perplexity: 'perplexity of the answers' };
  const allMeasures = { ...choiceMeasures, ...textMeasures, ...likelihoodMeasures };
  const isShare = (measure) => !(measure in likelihoodMeasures);
  const shown = (measure, number) => (isShare(measure) || number === undefined ? percent(number) : Number(number.toPrecision(4)));
  const unit = (measure) => (isShare(measure) ? 'percent' : measure);
  const measured = (task, key) => runs.some((run) => run.evaluations.some((e) => (!task || e.task === task) && key in e));
  // A task has the measures of its kind.
  const measuresOf = (task) => Object.keys(allMeasures).filter((key) => measured(task, key));
  const tasksWith = (key) => tasks.filter((task) => measured(task, key));

  function value(run, task, budget, round, measure) {
    const found = run.evaluations.filter(
      (e) => e.round === round && e.budget === budget && (!task || e.task === task) && measure in e);
    return found.length ? mean(found.map((e) => e[measure])) : undefined;
  }
  const level = (task, key) => {
    const found = tasksWith(key).filter((name) => !task || name === task)
      .map((name) => runs.flatMap((run) => run.evaluations).find((e) => e.task === name)[key]);
    return found.length ? mean(found) : undefined;
  };
  // Of the first run that has the task.
  const countOf = (task, key) => (runs.flatMap((run) => run.evaluations).find((e) => e.task === task) || {})[key];
  const levelsOf = (measure) => (measure in choiceMeasures ? ['chance', 'majority'] : []);

  function accuracySection() {
    const section = document.getElementById('accuracy');
    if (!tasks.length) return void element('p', section, 'Nothing is evaluated yet.', 'note');
    const controls = element('p', section);
    element('label', controls, 'task');
    const taskChoice = element('select', controls);
    ['mean over tasks', ...tasks].forEach((name, i) => { element('option', taskChoice, name).value = i ? name : ''; });
    element('label', controls, 'measure');
    const measureChoice = element('select', controls);
    const charts = element('div', section, undefined, 'row');
    const tables = element('div', section);
    let drawn = [];

    function byBudget(task, measure) {
      const sets = scored.map((run, i) => line(run.label,
        budgets.map((budget) => shown(measure, value(run, task, budget, lastEvaluated(run), measure))), i));
      (measure === 'invalid_rate' ? [] : levelsOf(measure)).forEach((key, i) => {
        sets.push(line(key, budgets.map(() => percent(level(task, key))), scored.length + i, true));
      });
      return lines(charts, 'by budget, last evaluated round', 'budget', unit(measure), budgets, sets);
    }
    function byRound(task, measure) {
      const rounds = unique(scored.flatMap((run) => run.evaluations.map((e) => e.round))).sort((a, b) => a - b);
      if (!scored.some((run) => unique(run.evaluations.map((e) => e.round)).length > 1)) return [];
      const sets = scored.flatMap((run, i) => budgets.map((budget, b) => ({
        ...line(`${run.label}, budget ${budget}`,
          rounds.map((round) => shown(measure, value(run, task, budget, round, measure))), i),
        borderWidth: 1 + b,
      })));
      return [lines(charts, 'by round', 'round', unit(measure), rounds, sets)];
    }
    function fullTable(measure) {
      const levels = levelsOf(measure);
      const titles = ['task', ...scored.flatMap(() => budgets), ...levels, 'rows', 'questions'];
      const groups = [['budget', 1], ...scored.map((run) => [run.label, budgets.length]), ['', levels.length + 2]];
      const row = (name, task) => [name,
        ...scored.flatMap((run) => budgets.map((budget) => shown(measure, value(run, task, budget, lastEvaluated(run), measure)))),
        ...levels.map((key) => percent(level(task, key))), ...['rows', 'questions'].map((key) => (task ? countOf(task, key) || '–' : ''))];
      table(tables, titles, [...tasksWith(measure).map((task) => row(task, task)), row('mean', '')], true, groups);
    }
    function offerMeasures() {
      const chosen = measureChoice.value;
      const offered = measuresOf(taskChoice.value);
      measureChoice.replaceChildren();
      offered.forEach((key) => { element('option', measureChoice, allMeasures[key]).value = key; });
      if (offered.includes(chosen)) measureChoice.value = chosen;
    }
    function draw() {
      drawn.forEach((chart) => chart.destroy());
      charts.replaceChildren();
      tables.replaceChildren();
      drawn = [byBudget(taskChoice.value, measureChoice.value), ...byRound(taskChoice.value, measureChoice.value)];
      fullTable(measureChoice.value);
    }
    taskChoice.onchange = () => { offerMeasures(); draw(); };
    measureChoice.onchange = draw;
    offerMeasures();
    draw();
  }

  // --- clients: who gains, who loses ---
  // Percent, or a negative log-likelihood, of which less is better and no question is a unit.
  const headline = (e) => ('nll' in e ? e.nll : 100 * ('accuracy' in e ? e.accuracy : e.f1));
  const digits = (e) => ('nll' in e ? 3 : 1);
  const scoreText = (e) => (e ? headline(e).toFixed(digits(e)) : '–');
  const signed = (gain, e) => (gain === undefined ? '–' : (gain > 0 ? '+' : '') + gain.toFixed(digits(e)));
  const questionsOf = (e) => Math.max(1, e.questions || e.rows);
  const direction = (gain, e) => (Math.abs(gain) <= ('nll' in e ? 0 : 100 / questionsOf(e) + 1e-9) ? 0 : Math.sign(gain));
  const gainOf = (from, to) => (from && to ? (headline(to) - headline(from)) * ('nll' in to ? -1 : 1) : undefined);

  // One line per client, task and reading, the largest gain first.
  function clientResults(run) {
    const last = Math.max(-1, ...run.ofClients.map((e) => e.round));
    const found = new Map();
    for (const e of run.ofClients.filter(({ round }) => round === 0 || round === last)) {
      const key = JSON.stringify([e.task, e.reading, e.client]);
      const one = found.get(key) || { key, e, who: e.client_name ? `${e.client} (${e.client_name})` : String(e.client) };
      found.set(key, one);
      if (e.rows_of === 'all' && e.round === last) one.all = e;
      if (e.rows_of === 'own' && e.round === last) one.own = e;
      if (e.rows_of === 'own' && e.round === 0 && last > 0) one.before = e;
    }
    const order = (one) => gainOf(one.before, one.own) ?? (one.own ? headline(one.own) * ('nll' in one.own ? -1 : 1) : -Infinity);
    return [...found.values()].sort((x, y) => order(y) - order(x));
  }
  function countsOf(pairs) {
    const signs = pairs.map(([moved, e]) => direction(moved, e));
    const many = (sign) => signs.filter((one) => one === sign).length;
    return `${many(1)} gain, ${many(-1)} lose, ${many(0)} within one question`;
  }
  function differenceBars(section, label, pairs) {
    const data = pairs.map(([, moved]) => moved.toFixed(3));
    lines(element('div', section, undefined, 'row'), 'difference on own rows', 'client', 'points',
      pairs.map(([who]) => who), [{ ...line(label, data, 0), type: 'bar' }]);
  }
  function clientsOfRun(section, run) {
    const results = clientResults(run);
    if (!results.length) return;
    element('h3', section, run.label);
    const compared = results.filter((one) => one.before && one.own);
    const pairs = compared.map((one) => [gainOf(one.before, one.own), one.own]);
    if (compared.length) {
      element('p', section, `Own test rows, before the first round and now: ${countsOf(pairs)}.`, 'note');
      differenceBars(section, run.label, compared.map((one, i) => [one.who, pairs[i][0]]));
    }
    table(section, ['client', 'budget', 'task', 'reading', 'own before', 'own now', 'difference', 'all rows', 'own rows', 'questions'],
      results.map(({ who, e, before, own, all }) => [who, e.budget, e.task, e.reading || '', scoreText(before),
        scoreText(own), signed(gainOf(before, own), own), scoreText(all), own ? own.rows : '–', own ? questionsOf(own) : '–']));
  }
  // Own rows of two runs or more, and of each reading of a rank method, against the first.
  function clientsSideBySide(section) {
    const sides = runs.flatMap((run) => {
      const own = clientResults(run).filter((one) => one.own);
      return unique(own.map(({ e }) => e.reading)).sort().map((reading) => ({
        label: reading ? `${run.label} (${reading})` : run.label, results: own.filter(({ e }) => e.reading === reading),
      }));
    });
    const [first, ...others] = runs.length > 1 ? sides : [];
    for (const other of others) {
      const that = (one) => other.results.find(({ e }) => e.client === one.e.client && e.task === one.e.task);
      const pairs = first.results.filter(that).map((one) => ({ ...one, that: that(one), gain: gainOf(one.own, that(one).own) }))
        .sort((x, y) => y.gain - x.gain);
      if (!pairs.length) continue;
      element('h3', section, `${other.label} against ${first.label}`);
      element('p', section, `Own test rows: ${countsOf(pairs.map(({ own, gain }) => [gain, own]))}.`, 'note');
      differenceBars(section, other.label, pairs.map(({ who, gain }) => [who, gain]));
      table(section, ['client', 'budget', 'task', first.label, other.label, 'difference', 'own rows', 'questions'],
        pairs.map((one) => [one.who, one.e.budget, one.e.task, scoreText(one.own), scoreText(one.that.own),
          signed(one.gain, one.own), one.own.rows, questionsOf(one.own)]));
    }
  }
  function clientsSection() {
    const section = document.getElementById('clients');
    section.hidden = !runs.some((run) => run.ofClients.length);
    runs.forEach((run) => clientsOfRun(section, run));
    clientsSideBySide(section);
  }

  // --- quantities by round ---
  const allRounds = unique(runs.flatMap((run) => run.rounds.map((round) => round.round))).sort((a, b) => a - b);
  const series = (run, pick) => {
    const byRound = new Map(run.rounds.map((round) => [round.round, pick(round)]));
    return allRounds.map((round) => byRound.get(round));
  };
  function byRoundChart(parent, title, yTitle, pick, tick) {
    const sets = runs.map((run, i) => line(run.label, series(run, pick), i))
      .filter((set) => set.data.some((item) => item !== undefined));
    if (sets.length) lines(parent, title, 'round', yTitle, allRounds, sets, tick);
  }

  function trainingSection() {
    const row = element('div', document.getElementById('training'), undefined, 'row');
    byRoundChart(row, 'training loss', 'nats per target token', (round) => round.loss);
    byRoundChart(row, 'experts per token', 'experts', (round) => round.experts_per_token);
    const metrics = unique(runs.flatMap((run) => run.rounds.flatMap((round) => Object.keys(round.metrics || {}))));
    for (const name of metrics) byRoundChart(row, name.replaceAll('_', ' '), '', (round) => (round.metrics || {})[name]);
  }

  // --- scores and losses against simulated time and bytes ---
  const duration = (seconds) => (seconds < 120 ? `${Number(seconds.toPrecision(3))} s`
    : seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`);

  // What had been sent and had passed after each round, and before the first.
  function progressOf(run) {
    let bytes = 0;
    const after = new Map([[0, { bytes: 0, seconds: run.rounds.some((round) => 'seconds' in round) ? 0 : undefined }]]);
    for (const round of run.rounds) {
      bytes += round.bytes_up + round.bytes_down;
      after.set(round.round, { bytes, seconds: round.seconds });
    }
    return after;
  }
  // The mean over tasks and budgets of what the run's own routing scored, free text by its F1, by round.
  function scoreByRound(run) {
    const own = run.evaluations.filter((e) => !e.as_exported && ('accuracy' in e || 'f1' in e));
    const first = own.filter((e) => e.reading === own[0].reading);
    return unique(first.map((e) => e.round)).sort((a, b) => a - b).map((round) => [round,
      100 * mean(first.filter((e) => e.round === round).map((e) => ('accuracy' in e ? e.accuracy : e.f1)))]);
  }
  function timeSection() {
    const row = element('div', document.getElementById('time'), undefined, 'row');
    const kinds = [['seconds', 'simulated time', duration], ['bytes', 'bytes up and down', compact]];
    const measures = [['mean score', 'percent', scoreByRound],
      ['training loss', 'nats per target token', (run) => run.rounds.map((round) => [round.round, round.loss])]];
    for (const [title, unitOfY, pick] of measures)
      for (const [key, xTitle, tick] of kinds) {
        const sets = runs.map((run, i) => {
          const after = progressOf(run);
          return line(run.label, pick(run).filter(([round]) => after.has(round) && after.get(round)[key] !== undefined)
            .map(([round, y]) => ({ x: after.get(round)[key], y })), i);
        }).filter((set) => set.data.length);
        if (sets.length) lines(row, `${title} against ${xTitle}`, xTitle, unitOfY, undefined, sets, undefined, tick);
      }
  }

  // --- heat map: layers down, experts across ---
  function shade(share) {
    const stops = [[247, 250, 255], [147, 197, 253], [37, 99, 235], [30, 27, 75]];
    const at = Math.min(0.9999, Math.max(0, share)) * (stops.length - 1);
    const low = Math.floor(at);
    return stops[low].map((c, i) => Math.round(c + (at - low) * (stops[low + 1][i] - c)));
  }
  function drawHeat(canvas, layers, most) {
    canvas.width = layers[0].length;
    canvas.height = layers.length;
    const pen = canvas.getContext('2d');
    const image = pen.createImageData(canvas.width, canvas.height);
    layers.flat().forEach((use, i) => image.data.set([...shade(use / most), 255], 4 * i));
    pen.putImageData(image, 0, 0);
    canvas.style.height = `${Math.min(420, Math.max(60, 22 * layers.length))}px`;
  }
  function heatMap(parent, run) {
    const frames = run.rounds.filter((round) => round.utilization);
    if (!frames.length) return;
    const most = Math.max(...frames.flatMap((round) => round.utilization.flat())) || 1;
    const box = element('div', parent, undefined, 'map');
    element('h3', box, run.label);
    const canvas = element('canvas', box, undefined, 'heat');
    const caption = element('p', box, undefined, 'note');
    const slider = element('input', box);
    Object.assign(slider, { type: 'range', min: 0, max: frames.length - 1, value: frames.length - 1 });
    let shown = frames[frames.length - 1];
    const show = () => {
      shown = frames[slider.value];
      drawHeat(canvas, shown.utilization, most);
      caption.textContent = `round ${shown.round}; layers down, experts across; darkest = ${most.toPrecision(3)}`;
    };
    canvas.onmousemove = (event) => {
      const layers = shown.utilization;
      const layer = Math.min(layers.length - 1, Math.floor(event.offsetY / canvas.clientHeight * layers.length));
      const expert = Math.min(layers[0].length - 1, Math.floor(event.offsetX / canvas.clientWidth * layers[0].length));
      canvas.title = `layer ${layer}, expert ${expert}: ${layers[Math.max(0, layer)][Math.max(0, expert)]}`;
    };
    slider.oninput = show;
    show();
  }
  function expertsSection() {
    const section = document.getElementById('experts');
    if (!runs.some((run) => run.rounds.some((round) => round.utilization)))
      return void element('p', section, 'No sparse layers, or no round yet.', 'note');
    const maps = element('div', section, undefined, 'row');
    runs.forEach((run) => heatMap(maps, run));
    const row = element('div', section, undefined, 'row');
    byRoundChart(row, 'entropy of utilisation, mean over layers', '', (round) => round.entropy_mean);
    byRoundChart(row, 'Gini coefficient of utilisation, mean over layers', '', (round) => round.gini_mean);
  }

  // Bytes of a run by content, both ways.
  function trafficTable(parent) {
    const parts = (run, key) => {
      const sum = {};
      for (const round of run.rounds)
        for (const [content, bytes] of Object.entries(round[key] || {})) sum[content] = (sum[content] || 0) + bytes;
      return sum;
    };
    const shares = runs.flatMap((run) => {
      const up = parts(run, 'bytes_up_parts'), down = parts(run, 'bytes_down_parts');
      const cells = (sum, content, all) => (content in sum ? [compact(sum[content]), percent(sum[content] / all)] : ['–', '–']);
      return unique([...Object.keys(up), ...Object.keys(down)]).sort().map((content) => [run.label, content,
        ...cells(up, content, total(run, 'bytes_up')), ...cells(down, content, total(run, 'bytes_down'))]);
    });
    if (!shares.length) return;
    element('h3', parent, 'Traffic of all rounds and clients by content');
    table(parent, ['run', 'content', 'bytes up', 'percent', 'bytes down', 'percent'], shares);
  }

  function costSection() {
    const section = document.getElementById('cost');
    const row = element('div', section, undefined, 'row');
    byRoundChart(row, 'bytes up per round, all clients', 'bytes', (round) => round.bytes_up, compact);
    byRoundChart(row, 'bytes down per round, all clients', 'bytes', (round) => round.bytes_down, compact);
    byRoundChart(row, 'FLOPs per round, all clients', 'FLOPs', (round) => round.flops, compact);
    byRoundChart(row, 'tokens per round, all clients', 'tokens', (round) => round.tokens, compact);
    trafficTable(section);
  }

  function configsSection() {
    for (const run of runs) {
      const details = element('details', document.getElementById('configs'));
      element('summary', details, `${run.label} (evenkeel ${run.version})`);
      element('pre', details, run.config);
    }
  }

  differencesSection();
  accuracySection();
  clientsSection();
  trainingSection();
  timeSection();
  expertsSection();
  costSection();
  configsSection();
})();
