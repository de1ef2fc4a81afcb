// The section that compares the arms by budget.
'use strict';
const sectionOf = (id) => document.getElementById(id);
const rowOf = (parent, small) => element('div', parent, undefined, {class: small ? 'row small' : 'row'});
const noteIn = (parent, text) => element('p', parent, text, {class: 'note'});
// Names what the runs differ in beside their methods, wherever arms are compared.
function differencesNote(parent) {
  if (!differences.length) return;
  const note = noteIn(parent, `The runs also differ in ${differences.map(({what}) => what).join(', ')}. `);
  element('a', note, 'Show the values', {href: '#differences'});
}
const axisOf = (measure) =>
    ({title: measure.axis, text: textOf(measure), ...(measure.share ? {span: 10, bounds: [0, 100]} : {span: 0.1})});
const budgetTitles = budgets.map(({name}) => name);
const nameOfBudget = new Map(budgets.map(({budget, name}) => [budget, name]));

// The view on the screen: {measure, task, routing}. The arms of another task or routing are chosen by `of`.
const armsOf = ({measure, task, routing}) => viewOf(measure.name, task).served[routing].arms;
function byBudgetSeries(at) {
  const as = shownAs(at.measure);
  return armsOf(at)
      .map((arm) => ({
             name: arm.name,
             ...looksOf(arm),
             points: arm.means.map((mean, i) => pointOf(budgets[i].budget, mean, as))
                         .filter((point) => point.y !== undefined),
             thin: (arm.seeds[0] || [])
                       .map(
                           (_, seed) => arm.seeds.map((values, i) => ({x: budgets[i].budget, y: as (values[seed])}))
                                            .filter((point) => point.y !== undefined))
           }))
      .filter((one) => one.points.length);
}
function levelSeries({measure, task}) {
  const view = viewOf(measure.name, task);
  return [['chance', 'chance', '2 4'], ['majority', 'majority answer', '8 3']]
      .filter(([key]) => key in view)
      .map(([key, name, dash]) => ({
             name,
             level: true,
             dash,
             colour: 'var(--faint)',
             points: budgets.map(({budget}) => ({x: budget, y: shownAs(measure)(view[key])}))
           }));
}
// The differences of every arm: at each budget, then of the mean over budgets.
function differenceItems(at) {
  const as = shownAs(at.measure);
  const item = (arm, where, found) => ({
    name: `${arm.name}, ${where}`,
    ...looksOf(arm),
    ...pointOf(0, found, as),
    p: found.p,
    pHolm: found.p_holm,
    hollow: !(found.p_holm < 0.05)
  });
  return armsOf(at)
      .filter(({reference}) => reference)
      .flatMap(
          (arm) => [...arm.differences.map((found, i) => item(arm, budgetTitles[i], found)),
                    ...(budgets.length > 1 ? [item(arm, 'mean over budgets', arm.difference_over_budgets)] : [])]
                       .filter(({n}) => n));
}
function conclusionIn(parent, at) {
  const served = viewOf(at.measure.name, at.task).served[at.routing];
  if (served.unreadable) element('p', parent, served.unreadable, {class: 'conclusion warning', role: 'status'});
  if (served.conclusions.length) {
    const box = element('div', parent, undefined, {class: 'conclusion', role: 'status'});
    for (const sentence of served.conclusions) element('p', box, sentence);
  }
  if (served.comparisons > 1)
    noteIn(parent, `p-values are corrected for the ${served.comparisons} comparisons of this view by Holm's method.`);
  if (at.measure.name !== data.endpoint || at.task || at.routing !== routings[0].name)
    noteIn(
        parent,
        `Arms are compared by ${measureOf(data.endpoint).title}, mean over tasks, ${
            routings[0].title}. What is shown here is beside it.`);
  if (served.without.length) noteIn(parent, `Tasks without this measure: ${served.without.join(', ')}.`);
}
function fullTable(parent, at) {
  const arms = armsOf(at), as = shownAs(at.measure);
  const text = (value) => (at.measure.share ? value.toFixed(1) : short(value));
  const columns = [...budgetTitles, ...(budgets.length > 1 ? ['mean'] : [])];
  const cells = (arm) => [...arm.means, ...(budgets.length > 1 ? [arm.over_budgets] : [])].map(
      (mean) => plusMinus(text, pointOf(0, mean, as)));
  const row = (name, task, counts) => [name, ...armsOf({...at, task}).flatMap(cells), ...counts];
  const rows = tasksOf(at.measure.name).map(({name, rows: n, questions}) => row(name, name, [n, questions || '–']));
  const only = tasks.length === 1 ? tasks[0] : undefined;
  table(
      parent, ['task', ...arms.flatMap(() => columns), 'rows', 'questions'],
      [...rows, only ? row(only.name, '', [only.rows, only.questions || '–']) : row('mean over tasks', '', ['', ''])], {
        lastIsMean: !only,
        caption: `${at.measure.axis}, after the last evaluated round`,
        groupTitles: [['', 1], ...arms.map(({name}) => [name, columns.length]), ['', 2]]
      });
}
function chooser(parent, name, options, chosen) {
  const holder = element('label', parent, name);
  const select = element('select', holder);
  select.offer = (offered) => {
    const before = select.value;
    select.replaceChildren();
    for (const [value, text] of offered) element('option', select, text, {value});
    if (offered.some(([value]) => value === before)) select.value = before;
  };
  select.offer(options);
  if (chosen !== undefined) select.value = chosen;
  holder.hidden = options.length < 2;
  return select;
}
// Missing runs and other remarks of the comparison.
function remarksIn(section) {
  for (const note of data.notes) noteIn(section, `${note[0].toUpperCase()}${note.slice(1)}.`);
  if (!data.missing.length) return;
  const details = element('details', section);
  element(
      'summary', details,
      `${data.missing.length} run${data.missing.length > 1 ? 's or scores are' : ' or score is'} missing`);
  const list = element('ul', details);
  for (const line of data.missing) element('li', list, line);
}
function chartsIn(body, at) {
  const row = rowOf(body);
  const x = {
    title: budgets.every(({name}) => name.startsWith('K')) ? 'experts per token (budget)' : 'budget',
    values: budgets.map(({budget}) => budget),
    text: (budget) => nameOfBudget.get(budget)
  };
  linesChart(row, {
    title: `${at.measure.title} by budget`,
    note: at.task || (tasks.length > 1 ? 'mean over tasks' : tasks[0].name),
    x,
    y: axisOf(at.measure),
    series: [...byBudgetSeries(at), ...levelSeries(at)]
  });
  forestChart(row, {
    title: `Difference to ${data.reference}, seed by seed`,
    note:
        'bars: 95 % interval of the paired difference (t); filled: p < 0.05 after Holm\'s correction; means over budgets are not tested',
    items: differenceItems(at),
    text: (value) => `${value > 0 ? '+' : ''}${short(value)}`,
    xTitle: at.measure.share ? `${at.measure.title}, percentage points` : at.measure.axis,
    span: at.measure.share ? 4 : 0.1
  });
  const named = tasksOf(at.measure.name);
  if (at.task || named.length < 2) return;
  element('h3', body, 'Each task');
  const facets = rowOf(body, true);
  for (const {name} of named)
    linesChart(facets, {
      title: name,
      x,
      y: axisOf(at.measure),
      small: true,
      series: [...byBudgetSeries({...at, task: name}), ...levelSeries({...at, task: name})]
    });
}
function comparisonSection() {
  const section = sectionOf('comparison');
  if (!views.length) return void noteIn(section, 'Nothing is evaluated yet.');
  remarksIn(section);
  if (groups.length > 1) differencesNote(section);
  const controls = element('div', section, undefined, {class: 'controls'});
  const measuresOf = (task) => measures.filter(({name}) => viewOf(name, task)).map(({name, title}) => [name, title]);
  const measure = chooser(controls, 'Measure', measuresOf(''), data.endpoint);
  const task = chooser(
      controls, 'Task', [['', 'mean over tasks'], ...(tasks.length > 1 ? tasks.map(({name}) => [name, name]) : [])]);
  const routing = chooser(controls, 'Routing', routings.map(({name, title}) => [name, title]));
  const body = element('div', section);
  const draw = () => {
    const at = {task: task.value, measure: measureOf(measure.value), routing: routing.value};
    body.replaceChildren();
    conclusionIn(body, at);
    chartsIn(body, at);
    fullTable(body, at);
  };
  task.onchange = () => {
    measure.offer(measuresOf(task.value));
    draw();
  };
  measure.onchange = routing.onchange = draw;
  draw();
}
