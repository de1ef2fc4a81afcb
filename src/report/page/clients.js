// The section of clients at their own budgets.
'use strict';
const clientName = ({client, budget_name: budget, task, mode}) =>
    `client ${client}, ${budget}${tasks.length > 1 ? `, ${task}` : ''}${mode ? ` (${mode})` : ''}`;
function gainsChart(section, title, {counts, clients, run}) {
  noteIn(section, `Own test rows: ${counts}.`);
  forestChart(rowOf(section), {
    title,
    xTitle: 'points on own rows',
    items: clients.slice(0, 60).map((one) => ({name: clientName(one), y: one.gain, n: 1, ...looksOf(runs[run])}))
  });
}
const signed = (value, decimals) => `${value > 0 ? '+' : ''}${value.toFixed(decimals)}`;
function clientsOfRun(section, {run, counts, clients}) {
  const {label} = runs[run];
  element('h3', section, label);
  const compared = clients.filter(({gain}) => gain !== undefined);
  if (compared.length)
    gainsChart(section, `${label}: gain since before the first round`, {counts, clients: compared, run});
  table(
      section,
      ['client', 'budget', 'task', 'mode', 'own before', 'own now', 'gain', 'all rows', 'own rows', 'questions'],
      clients.map((one) => {
        const text = (value) => value.toFixed(one.decimals);
        return [
          one.client, one.budget, one.task, one.mode, orDash(one.before, text), orDash(one.own, text),
          orDash(one.gain, (value) => signed(value, one.decimals)), orDash(one.all, text), orDash(one.rows, String),
          orDash(one.questions, String)
        ];
      }),
      {caption: `Clients of ${label}`});
}
function clientsSection() {
  const section = sectionOf('clients'), {runs: ofRuns, against_first: against} = data.clients;
  section.hidden = !ofRuns.length;
  for (const one of ofRuns) clientsOfRun(section, one);
  if (against.length) differencesNote(section);
  for (const side of against) {
    element('h3', section, side.title);
    gainsChart(section, `${side.title}, client by client`, side);
  }
}
