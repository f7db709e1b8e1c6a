// The tree of queues: used, guaranteed and max of each resource, as bars with their numbers beside them.

import { failure, h, replace, table } from '../dom.js';
import { counted } from '../format.js';
import { ask, parameters, remember } from '../net.js';

export const title = 'Queues';
export const lead = 'Used, guaranteed and max of each queue, as the leading planner has them.';

const EVERY_MILLISECONDS = 10_000;

export async function show({ body, store, signal }) {
  const input = h('input', { name: 'find', type: 'search', value: parameters().find || '', autocomplete: 'off', spellcheck: 'false', placeholder: 'part of a path', oninput: () => { remember({ find: input.value.trim() }); draw(); } });
  const content = h('div');
  body.append(
    h('form', { class: 'filters', onsubmit: (event) => event.preventDefault() }, h('label', null, 'Queue ', input),
      h('span', { class: 'legend' }, h('span', null, h('i', { class: 'swatch used' }), 'used'), h('span', null, h('i', { class: 'swatch guaranteed' }), 'guaranteed'), h('span', null, h('i', { class: 'swatch max' }), 'max'))),
    content);
  let found = null;
  const open = new Set();
  function draw() {
    if (!found) return;
    const text = (parameters().find || '').toLowerCase();
    const shown = found.queues.filter((queue) => queue.path.toLowerCase().includes(text));
    replace(content,
      found.note ? h('p', { class: 'notice' }, found.note) : null,
      table('Queues, parents before children', [['Queue'], ['Pods', 'number'], ['Resources']], shown.map((queue) => drawn(queue, !!text)), { class: 'queues' }),
      found.total > found.queues.length ? h('p', { class: 'muted' }, `The first ${found.queues.length} of ${counted(found.total, 'queue')}.`) : null,
      h('p', { class: 'muted' }, `Answered by ${found.planner}.`));
  }
  function drawn(queue, flat) {
    const details = h('details', { open: open.has(queue.path), ontoggle: (event) => { if (event.target.open) open.add(queue.path); else open.delete(queue.path); } },
      h('summary', { 'aria-label': `${queue.path}: all that is known of it` }, flat ? queue.path : queue.name),
      h('pre', null, queue.lines.join('\n')));
    return h('tr', { 'data-depth': flat ? 0 : queue.depth },
      h('th', { scope: 'row', class: 'queue', style: { 'padding-left': `${0.75 + (flat ? 0 : queue.depth) * 1.4}rem` } }, details),
      h('td', { class: 'number' }, queue.pods.toLocaleString('en')),
      h('td', null, queue.bars.length ? queue.bars.map(bar) : h('span', { class: 'muted' }, 'nothing used, no limits')));
  }
  async function update() {
    try {
      found = await ask('/api/queues', {}, { signal });
      draw();
    } catch (error) {
      if (!signal.aborted) replace(content, error.status === 404 ? h('p', { class: 'empty' }, error.message) : failure(error));
    }
  }
  const timer = setInterval(() => { if (store.live && !content.contains(document.activeElement)) update(); }, EVERY_MILLISECONDS);
  signal.addEventListener('abort', () => clearInterval(timer));
  await update();
}

function bar(one) {
  const said = { full: ' full', above: ' above max' }[one.state] || '';
  return h('div', { class: 'resource' },
    h('span', { class: 'what' }, one.resource),
    one.max ? h('span', { class: `bar limited${one.state ? ' full' : ''}`, 'aria-hidden': 'true' },
      h('span', { class: 'used', style: { width: `${100 * one.usedShare}%` } }),
      one.guaranteed ? h('span', { class: 'guaranteed', style: { left: `${100 * one.guaranteedShare}%` } }) : null) : h('span', { class: 'muted' }, 'no max'),
    h('span', { class: 'amounts' }, one.used, one.max ? ` of ${one.max}` : '', said, one.guaranteed ? h('span', { class: 'muted' }, ` guaranteed ${one.guaranteed}`) : null));
}
