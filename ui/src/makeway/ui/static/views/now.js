// What goes on now: orders in flight, who was refused lately and why, and who answers.

import { attempt, empty, h, replace, result, table, tile } from '../dom.js';
import { age, counted, seconds, spaced, who } from '../format.js';
import { ask, link, parameters, remember } from '../net.js';
import { concerns, victims } from '../pods.js';

export const title = 'Now';
export const lead = 'Room that is being made, and pods for which none can be made.';

const EVERY_MILLISECONDS = 5_000;
const SOONEST_MILLISECONDS = 1_000;
const MOST_IN_FLIGHT = 100;
const MOST_REASONS = 50;
const MOST_EXAMPLES = 3;
const WINDOWS = [['5m', '5 minutes', 300], ['15m', '15 minutes', 900], ['1h', 'hour', 3600], ['6h', '6 hours', 21600], ['24h', '24 hours', 86400]];

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
  const update = () => attempt(content, signal, async () => {
    const { window, namespace } = parameters();
    const { parts } = await ask('/api/now', {}, { signal });
    const [, , back] = WINDOWS.find(([value]) => value === window) || WINDOWS[2];
    const found = { ...sums(store.newest(), Date.now() - 1000 * back, namespace), loaded: store.loaded, parts };
    const held = document.activeElement?.getAttribute('href');
    replace(content, drawn(found));
    if (held && !document.activeElement?.matches('a')) {
      [...content.querySelectorAll('a')].find((one) => one.getAttribute('href') === held)?.focus();
    }
  });
  await store.refresh(update, signal, SOONEST_MILLISECONDS, EVERY_MILLISECONDS);
}

// What entries come to, which are the newest first: of each pod or group the last answer counts.
function sums(entries, since, namespace) {
  const found = { inFlight: [], results: {}, evicted: 0 };
  const last = new Map();
  for (const entry of entries) {
    if (namespace && !concerns(entry, namespace)) continue;
    if (['live', 'overdue'].includes(entry.result)) found.inFlight.unshift(entry);
    if (entry.time < since) continue;
    found.results[entry.result] = (found.results[entry.result] || 0) + 1;
    if (entry.result === 'succeeded') found.evicted += entry.victimsTotal || 0;
    if (entry.uid && !last.has(entry.uid)) last.set(entry.uid, entry);
  }
  const byReason = new Map();
  for (const entry of last.values()) {
    if (entry.result !== 'refused') continue;
    if (!byReason.has(entry.reason)) byReason.set(entry.reason, []);
    byReason.get(entry.reason).push(entry);
  }
  found.refused = [...byReason].map(([reason, those]) => ({ reason, those })).sort((a, b) => b.those.length - a.those.length);
  found.refusedPods = found.refused.reduce((sum, one) => sum + one.those.length, 0);
  return found;
}

function drawn(found) {
  const failed = (found.results.failed || 0) + (found.results.expired || 0) + (found.results.overdue || 0);
  // Before the streams have been read a sum would be too small, and "none" wrong.
  const known = (number) => (found.loaded ? number : '…');
  const none = (text) => empty(found.loaded ? text : 'The streams are being read.');
  return [
    h('dl', { class: 'tiles' },
      tile('In flight', known(found.inFlight.length), 'orders without an outcome'),
      tile('Room made', known(found.results.succeeded || 0), `${known(counted(found.evicted, 'pod'))} evicted`),
      tile('Refused', known(found.refusedPods), 'pods and groups, by their last answer', found.refusedPods ? 'warn' : ''),
      tile('Failed', known(failed), 'orders rolled back or without outcome', failed ? 'bad' : '')),
    h('section', { 'aria-labelledby': 'in-flight' },
      h('h2', { id: 'in-flight' }, 'In flight'),
      found.inFlight.length ? inFlight(found) : none('No order is being carried out.')),
    h('section', { 'aria-labelledby': 'refused' },
      h('h2', { id: 'refused' }, 'Refused pods and groups, by reason'),
      found.refused.length ? refused(found.refused.slice(0, MOST_REASONS)) : none('No pod or group was refused in this time.')),
    h('section', { 'aria-labelledby': 'parts' },
      h('h2', { id: 'parts' }, 'Components that answer'),
      found.parts && found.parts.length ? parts(found.parts)
        : empty(found.parts ? 'No component of makeway answers on NATS.' : 'The components are being asked.')),
  ];
}

function inFlight(found) {
  const columns = [['For', 'name'], ['Node', 'name'], ['Victims', 'text'], ['State', ''], ['Age', 'number'], ['Left', 'number'], ['Order', 'id']];
  return table('Orders in flight', columns, found.inFlight.slice(0, MOST_IN_FLIGHT).map((entry) => [
    h('a', { href: link('/story', { what: entry.orderId || entry.decisionId }) }, who(entry)),
    entry.node || '–', victims(entry), result(entry.result), age(seconds(entry.at)),
    entry.until ? age(seconds(Date.now(), new Date(entry.until).getTime())) : '–',
    h('code', null, entry.orderId)]));
}

function refused(reasons) {
  const most = reasons[0].those.length;
  const columns = [['Reason', 'text'], ['Pods and groups', 'number'], ['Share', 'bars'], ['Last', 'number'], ['For example', 'text']];
  return table('Pods and groups refused, by reason', columns, reasons.map((one) => [
    h('span', null, spaced(one.reason), h('br'), h('code', { class: 'muted' }, one.reason)),
    one.those.length.toLocaleString('en'),
    h('span', { class: 'bar', 'aria-hidden': 'true' }, h('span', { class: 'used', style: { width: `${100 * one.those.length / most}%` } })),
    age(seconds(one.those[0].at)),
    h('ul', { class: 'plain' }, one.those.slice(0, MOST_EXAMPLES).map((entry) => h('li', null,
      h('a', { href: link('/story', { what: entry.kind === 'group' ? entry.decisionId : `${entry.namespace}/${entry.name}` }) }, who(entry)),
      entry.times > 1 ? ` ${entry.times} times` : '')))]));
}

// What keeps a component from its work.
function remark(one) {
  const said = [one.trouble, one.brake && `braked: ${one.brake}`, one.breaker && `breaker open: ${one.breaker}`, one.loops];
  return said.filter(Boolean).join('; ');
}

function parts(found) {
  const columns = [['Component', 'name'], ['Name', 'name'], ['Mode', ''], ['Role', ''], ['Version', ''], ['Remark', 'text']];
  return table('Components of makeway that answer', columns, found.map((one) => [
    one.component, one.identity, one.mode, one.component === 'planner' || one.component === 'nominator' ? (one.leading ? 'leader' : 'standby') : 'active',
    one.version, remark(one) || '–']));
}
