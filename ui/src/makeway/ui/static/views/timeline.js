// Preemptions and refusals, the newest first, with a picture of when they were.

import { announce, empty, h, replace, result, row, svg, table, word } from '../dom.js';
import { age, counted, seconds, spaced, who, whole } from '../format.js';
import { link, parameters, pause, remember } from '../net.js';
import { concerns, victims } from '../pods.js';

export const title = 'Timeline';
export const lead = 'Preemptions and refusals: for which pod, where, which victims, why, and the result.';

const AT_ONCE = 100;
const COLUMNS = [['For', 'name'], ['Age', 'number'], ['Result', ''], ['Node', 'name'], ['Victims', 'text'], ['Why', 'text'], ['Took', 'number']];
const RESULTS = ['succeeded', 'live', 'planned', 'refused', 'failed', 'overdue', 'expired', 'cancelled', 'notCarriedOut', 'observed', 'preempted'];
const SINCE = [['', 'all that is loaded'], ['300', '5 minutes'], ['3600', 'hour'], ['21600', '6 hours'], ['86400', '24 hours']];
const BUCKETS = 60;
const ROWS_AT_ONCE = 25;
const KINDS = [
  ['Room made', ['succeeded'], 'made'],
  ['Refused', ['refused'], 'refused'],
  ['Failed', ['failed', 'overdue', 'expired'], 'failed'],
  ['Other', ['live', 'planned', 'cancelled', 'notCarriedOut', 'observed', 'preempted'], 'other'],
];

const KIND_OF = new Map(KINDS.flatMap(([, results], place) => results.map((one) => [one, place])));

export async function show({ body, store, signal }) {
  const chosen = parameters();
  const filters = h('form', { class: 'filters', onsubmit: (event) => event.preventDefault() },
    h('label', null, 'Result ', h('select', { name: 'result', onchange: change }, h('option', { value: '' }, 'all'),
      RESULTS.map((value) => h('option', { value, selected: value === chosen.result }, word(value))))),
    h('label', null, 'Last ', h('select', { name: 'since', onchange: change },
      SINCE.map(([value, text]) => h('option', { value, selected: value === (chosen.since || '') }, text)))),
    h('label', null, 'Namespace ', h('input', { name: 'namespace', value: chosen.namespace || '', oninput: change, autocomplete: 'off', spellcheck: 'false', placeholder: 'all' })),
    h('label', null, 'Find ', h('input', { name: 'find', type: 'search', value: chosen.find || '', oninput: change, autocomplete: 'off', spellcheck: 'false', placeholder: 'pod, node, queue, id' })));
  const count = h('p', { class: 'muted count' });
  const picture = h('div');
  const listed = table('Preemptions and refusals, the newest first', COLUMNS, [], { class: 'timeline' });
  const rows = listed.querySelector('tbody');
  const more = h('button', { type: 'button', class: 'more', onclick: () => { shown += AT_ONCE; draw(); } }, `Show ${AT_ONCE} more`);
  const nothing = h('div');
  body.append(filters, picture, count, listed, nothing, more);

  let shown = AT_ONCE;
  const drawn = new Map();
  let turn = 0;
  let typing = 0;
  function change() {
    const fields = filters.elements;
    remember({ result: fields.result.value, since: fields.since.value, namespace: fields.namespace.value.trim(), find: fields.find.value.trim() });
    shown = AT_ONCE;
    clearTimeout(typing);
    typing = setTimeout(() => { draw(); announce(count.textContent); }, 150);
  }

  function draw() {
    const found = store.newest().filter(wanted(parameters()));
    count.textContent = store.loaded || found.length ? `${counted(found.length, 'entry').replace('entrys', 'entries')} of ${store.entries.size.toLocaleString('en')}${store.loaded ? '' : ', loading'}` : 'loading';
    replace(picture, histogram(found));
    place(found.slice(0, shown));
    replace(nothing, found.length || !store.loaded ? null : empty('There is no such entry.'));
    more.hidden = found.length <= shown;
  }

  // Rows that stay are left where they are: what is new is put between them, in pieces.
  async function place(visible) {
    turn += 1;
    const mine = turn;
    const wantedKeys = new Set(visible.map((entry) => entry.key));
    for (const [key, one] of drawn) {
      if (!wantedKeys.has(key)) {
        one.node.remove();
        drawn.delete(key);
      }
    }
    let next = rows.firstElementChild;
    let made = 0;
    for (const entry of visible) {
      let one = drawn.get(entry.key);
      let held = false;
      if (one?.revision !== entry.revision) {
        held = one?.node.contains(document.activeElement);
        if (next && next === one?.node) next = next.nextElementSibling;
        one?.node.remove();
        one = { revision: entry.revision, node: drawRow(entry), time: entry.time };
        drawn.set(entry.key, one);
        made += 1;
      }
      if (one.node === next) next = next.nextElementSibling;
      else rows.insertBefore(one.node, next);
      if (held) one.node.querySelector('a').focus({ preventScroll: true });
      if (made === ROWS_AT_ONCE) {
        made = 0;
        await pause();
        if (mine !== turn || signal.aborted) return;
      }
    }
  }

  function grow() {
    for (const one of drawn.values()) one.node.querySelector('time').textContent = age(seconds(one.time));
  }

  const stop = store.subscribe(() => { if (store.live) draw(); });
  const timer = setInterval(grow, 5_000);
  signal.addEventListener('abort', () => { stop(); clearInterval(timer); clearTimeout(typing); });
  draw();
}

function wanted({ result: only, since, namespace, find }) {
  const text = (find || '').toLowerCase();
  const from = since ? Date.now() - 1000 * Number(since) : 0;
  return (entry) => {
    if (only && entry.result !== only) return false;
    if (from && entry.time < from) return false;
    if (namespace && !concerns(entry, namespace)) return false;
    return !text || searched(entry).includes(text);
  };
}

function searched(entry) {
  if (entry.searched === undefined) {
    const names = (entry.victims || []).map((one) => `${one.namespace}/${one.name}`);
    entry.searched = [who(entry), entry.node, entry.queue, entry.reason, entry.orderId, entry.decisionId, ...names].join(' ').toLowerCase();
  }
  return entry.searched;
}

function drawRow(entry) {
  const what = entry.orderId || entry.decisionId;
  const cells = [
    h('a', { href: link('/story', { what }) }, who(entry)),
    h('time', { datetime: entry.at, title: whole(entry.at) }, age(seconds(entry.at))),
    [result(entry.result), entry.times > 1 ? h('span', { class: 'muted' }, ` ${entry.times} times`) : null],
    entry.node || '–', victims(entry), why(entry),
    entry.tookSeconds === undefined || entry.tookSeconds === null ? '–' : `${entry.tookSeconds.toFixed(2)} s`,
  ];
  return row(COLUMNS, cells, { 'data-key': entry.key });
}

function why(entry) {
  if (entry.preemptedBy) return `by ${entry.preemptedBy}, not by makeway`;
  if (entry.result === 'notCarriedOut') return entry.message ? `${entry.reason}: ${entry.message}` : entry.reason;
  if (entry.reason && entry.result !== 'succeeded') return h('span', { title: entry.message || null }, spaced(entry.reason));
  const rules = [...new Set((entry.victims || []).map((one) => one.rule))];
  return rules.length ? spaced(rules.join(', ')) : '–';
}

// Bars by time. The table below says the same in full, so the picture has one sentence in its place.
function histogram(entries) {
  if (entries.length < 2) return null;
  const last = entries[0].time;
  const first = Math.min(entries[entries.length - 1].time, last - 1000);
  const width = (last - first) / BUCKETS;
  const counts = KINDS.map(() => new Array(BUCKETS).fill(0));
  for (const entry of entries) {
    const bucket = Math.min(BUCKETS - 1, Math.floor((entry.time - first) / width));
    counts[KIND_OF.get(entry.result) ?? KINDS.length - 1][bucket] += 1;
  }
  const highest = Math.max(...Array.from({ length: BUCKETS }, (_, bucket) => counts.reduce((sum, kind) => sum + kind[bucket], 0)));
  const bars = [];
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    let top = 60;
    counts.forEach((kind, place) => {
      const height = 58 * kind[bucket] / highest;
      if (!height) return;
      top -= height;
      bars.push(svg('rect', { x: bucket * 10 + 1, y: top, width: 8, height, class: KINDS[place][2], rx: 1 }));
    });
  }
  const totals = KINDS.map(([name, , kind], place) => [name, kind, counts[place].reduce((a, b) => a + b, 0)]).filter(([, , total]) => total);
  const said = totals.map(([name, , total]) => `${name.toLowerCase()} ${total}`).join(', ');
  return h('figure', { class: 'histogram' },
    svg('svg', { viewBox: `0 0 ${BUCKETS * 10} 61`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `From ${whole(first)} to ${whole(last)}: ${said}` },
      bars, svg('line', { x1: 0, x2: BUCKETS * 10, y1: 60.5, y2: 60.5, class: 'axis' })),
    h('figcaption', null, h('span', null, whole(first)),
      h('span', { class: 'legend' }, totals.map(([name, kind, total]) => h('span', null, h('i', { class: `swatch ${kind}`, 'aria-hidden': 'true' }), `${name} ${total.toLocaleString('en')}`))),
      h('span', null, whole(last))));
}
