// What comparing has found: what kube-scheduler's own preemption did, and what makeway would have done.

import { attempt, empty, h, replace, result, table, tile } from '../dom.js';
import { age, counted, seconds, spaced, whole } from '../format.js';
import { ask, parameters, remember } from '../net.js';
import { podLink, victims } from '../pods.js';

export const title = 'Observe';
export const lead = 'What kube-scheduler’s own preemption did, beside what makeway would have done.';

const AT_ONCE = 50;
const SOONEST_MILLISECONDS = 3_000;
const EVERY_MILLISECONDS = 60_000;

export async function show({ body, store, signal }) {
  const only = h('select', { name: 'result', onchange: () => { remember({ result: only.value }); draw(); } });
  const content = h('div');
  body.append(h('form', { class: 'filters', onsubmit: (event) => event.preventDefault() }, h('label', null, 'Result ', only)), content);
  let found = null;
  let shown = AT_ONCE;
  function draw() {
    const chosen = parameters().result || '';
    const number = (value) => (found.loaded ? ` (${found.summary.results[value] || 0})` : '');
    replace(only, h('option', { value: '' }, 'all'), Object.keys(found.words).map((value) => h('option', { value, selected: value === chosen }, `${spaced(value)}${number(value)}`)));
    only.value = chosen;
    replace(content, drawn(found, chosen, shown, () => { shown += AT_ONCE; draw(); }));
  }
  const update = () => attempt(content, signal, async () => {
    found = await ask('/api/observed', {}, { signal });
    draw();
  });
  await store.refresh(update, signal, SOONEST_MILLISECONDS, EVERY_MILLISECONDS);
}

function drawn({ loaded, summary, words, comparisons }, only, most, more) {
  if (!loaded) return empty('The streams are being read.');
  if (!summary.compared) return empty('Nothing was compared: no pod has been preempted by others, or planned for in mode observe.');
  const shown = comparisons.filter((one) => !only || one.result === only);
  const columns = [['For', 'name'], ['Age', 'number'], ['Result', ''], ['kube-scheduler', 'text'], ['makeway', 'text'], ['By', 'text']];
  return [
    h('dl', { class: 'tiles' },
      tile('Compared', summary.compared, `${summary.pairs} with a choice on both sides`),
      side('Victims', summary.victims, summary.savedVictims),
      side('Budget violations', summary.pdbViolations, summary.savedPdbViolations),
      tile('Worse', summary.results.worse || 0, Object.entries(summary.worseBy).map(([rule, count]) => `${count} by ${spaced(rule).toLowerCase()}`).join(', ') || 'makeway was worse nowhere', summary.results.worse ? 'bad' : '')),
    table('Comparisons, the newest first', columns, shown.slice(0, most).map((one) => [
      podLink(one),
      h('time', { datetime: one.at, title: whole(one.at) }, age(seconds(one.at))),
      h('span', { title: words[one.result] }, result(one.result)), choice(one.defaultPreemption), choice(one.makeway), one.by ? spaced(one.by) : '–'])),
    shown.length > most ? h('button', { type: 'button', class: 'more', onclick: more }, `Show ${AT_ONCE} more of ${shown.length}`) : null,
  ];
}

function side(name, sides, saved) {
  const text = saved > 0 ? `makeway would have saved ${saved}` : saved < 0 ? `makeway would have cost ${-saved} more` : 'the same by makeway';
  return h('div', { class: `tile ${saved < 0 ? 'bad' : ''}` }, h('dt', null, name), h('dd', null, h('b', null, `${sides.defaultPreemption.toLocaleString('en')} → ${sides.makeway.toLocaleString('en')}`), h('span', null, text)));
}

function choice(one) {
  if (!one) return '–';
  const extra = [one.pdbViolations ? counted(one.pdbViolations, 'budget violation') : '', one.groupsBroken ? `${counted(one.groupsBroken, 'group')} broken` : ''].filter(Boolean).join(', ');
  return [h('b', { class: 'node' }, one.node), ': ', victims(one), extra ? `, ${extra}` : ''];
}
