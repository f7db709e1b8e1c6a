// What goes on now: orders in flight, who was refused lately and why, and who answers.

import { empty, failure, h, replace, result, table, tile } from '../dom.js';
import { age, counted, seconds, spaced, who } from '../format.js';
import { ask, link, parameters, remember } from '../net.js';
import { victims } from '../pods.js';

export const title = 'Now';
export const lead = 'Room that is being made, and pods for which none can be made.';

const EVERY_MILLISECONDS = 5_000;
const SOONEST_MILLISECONDS = 1_000;
const WINDOWS = [['5m', '5 minutes'], ['15m', '15 minutes'], ['1h', 'hour'], ['6h', '6 hours'], ['24h', '24 hours']];

export async function show({ body, store, signal }) {
  const chosen = parameters();
  const filters = h('form', { class: 'filters', onsubmit: (event) => event.preventDefault() },
    h('label', null, 'Last ', h('select', { name: 'window', onchange: change },
      WINDOWS.map(([value, text]) => h('option', { value, selected: value === (chosen.window || '1h') }, text)))),
    h('label', null, 'Namespace ', h('input', { name: 'namespace', value: chosen.namespace || '', onchange: change, autocomplete: 'off', spellcheck: 'false', placeholder: 'all' })));
  const content = h('div');
  body.append(filters, content);

  function change() {
    remember({ window: filters.elements.window.value, namespace: filters.elements.namespace.value.trim() });
    update();
  }
  async function update() {
    const { window, namespace } = parameters();
    try {
      const found = await ask('/api/now', { window, namespace }, { signal });
      const held = document.activeElement?.getAttribute('href');
      replace(content, drawn(found));
      if (held && !document.activeElement?.matches('a')) {
        [...content.querySelectorAll('a')].find((one) => one.getAttribute('href') === held)?.focus();
      }
    } catch (error) {
      if (!signal.aborted) replace(content, failure(error));
    }
  }
  await store.refresh(update, signal, SOONEST_MILLISECONDS, EVERY_MILLISECONDS);
}

function drawn(found) {
  const failed = (found.results.failed || 0) + (found.results.expired || 0) + (found.results.overdue || 0);
  // Before the streams have been read a sum would be too small, and "none" wrong.
  const known = (number) => (found.loaded ? number : '…');
  const none = (text) => empty(found.loaded ? text : 'The streams are being read.');
  return [
    h('dl', { class: 'tiles' },
      tile('In flight', known(found.inFlightTotal), 'orders without an outcome'),
      tile('Room made', known(found.results.succeeded || 0), `${known(counted(found.evicted, 'pod'))} evicted`),
      tile('Refused', known(found.refusedPods), 'pods and groups, by their last answer', found.refusedPods ? 'warn' : ''),
      tile('Failed', known(failed), 'orders rolled back or without outcome', failed ? 'bad' : '')),
    h('section', { 'aria-labelledby': 'in-flight' },
      h('h2', { id: 'in-flight' }, 'In flight'),
      found.inFlight.length ? inFlight(found) : none('No order is being carried out.')),
    h('section', { 'aria-labelledby': 'refused' },
      h('h2', { id: 'refused' }, 'Refused pods and groups, by reason'),
      found.refused.length ? refused(found.refused) : none('No pod or group was refused in this time.')),
    h('section', { 'aria-labelledby': 'parts' },
      h('h2', { id: 'parts' }, 'Components that answer'),
      found.parts && found.parts.length ? parts(found.parts)
        : empty(found.parts ? 'No component of makeway answers on NATS.' : 'The components are being asked.')),
  ];
}

function inFlight(found) {
  const columns = [['For', 'name'], ['Node', 'name'], ['Victims', 'text'], ['State', ''], ['Age', 'number'], ['Left', 'number'], ['Order', 'id']];
  return table('Orders in flight', columns, found.inFlight.map((entry) => [
    h('a', { href: link('/story', { what: entry.orderId || entry.decisionId }) }, who(entry)),
    entry.node || '–', victims(entry), result(entry.result), age(seconds(entry.at)),
    entry.until ? age(seconds(Date.now(), new Date(entry.until).getTime())) : '–',
    h('code', null, entry.orderId)]));
}

function refused(reasons) {
  const most = Math.max(...reasons.map((one) => one.pods));
  const columns = [['Reason', 'text'], ['Pods and groups', 'number'], ['Share', 'bars'], ['Last', 'number'], ['For example', 'text']];
  return table('Pods and groups refused, by reason', columns, reasons.map((one) => [
    h('span', null, spaced(one.reason), h('br'), h('code', { class: 'muted' }, one.reason)),
    one.pods.toLocaleString('en'),
    h('span', { class: 'bar', 'aria-hidden': 'true' }, h('span', { class: 'used', style: { width: `${100 * one.pods / most}%` } })),
    age(seconds(one.last)),
    h('ul', { class: 'plain' }, one.examples.slice(0, 3).map((entry) => h('li', null,
      h('a', { href: link('/story', { what: entry.kind === 'group' ? entry.decisionId : `${entry.namespace}/${entry.name}` }) }, who(entry)),
      entry.times > 1 ? ` ${entry.times} times` : '')))]));
}

function parts(found) {
  const columns = [['Component', 'name'], ['Name', 'name'], ['Mode', ''], ['Role', ''], ['Version', ''], ['Remark', 'text']];
  return table('Components of makeway that answer', columns, found.map((one) => [
    one.component, one.identity, one.mode, one.component === 'planner' || one.component === 'nominator' ? (one.leading ? 'leader' : 'standby') : 'active',
    one.version, one.remark || '–']));
}
