// The cluster as a grid of nodes in groups: which pods were evicted where and for whom, and what stands in a pod's way.

import { attempt, failure, h, replace, result, table } from '../dom.js';
import { age, counted, seconds, who, whole } from '../format.js';
import { ask, link, parameters, pause, remember } from '../net.js';
import { copied, podLink } from '../pods.js';
import { pendingAnswer } from './pending.js';

export const title = 'Cluster';
export const lead = 'Every node, how full it is by requests, and where pods were evicted for others.';

const EVERY_MILLISECONDS = 30_000;
const MOST_CELLS = 500;
const CELLS_AT_ONCE = 100;
const MOST_OPEN = 600;
const LATELY_SECONDS = 3600;
const ROOMY = 24; // up to so many nodes have room for names
const FITS = 'Room as it is';
const HELPS = 'Room can be made';

export async function show({ body, store, signal }) {
  const by = h('select', { name: 'by', onchange: () => { remember({ by: by.value }); update(); } });
  const pods = h('select', { name: 'pod', onchange: () => { remember({ pod: pods.value }); stand(); } });
  const find = h('input', { name: 'find', type: 'search', autocomplete: 'off', spellcheck: 'false', value: parameters().find || '', placeholder: 'part of a name', oninput: () => { remember({ find: find.value.trim() }); draw(); } });
  const summary = h('p', { class: 'muted count' });
  const standing = h('div', { 'aria-live': 'polite' });
  const grid = h('div', { class: 'groups' });
  const panel = h('aside', { class: 'panel', 'aria-label': 'One node', 'aria-live': 'polite', hidden: true });
  body.append(
    h('form', { class: 'filters', onsubmit: (event) => event.preventDefault() },
      h('label', null, 'Group by ', by), h('label', null, 'Node ', find), h('label', null, 'Pending pod ', pods)),
    standing, legend(), summary, h('div', { class: 'split' }, grid, panel));

  let found = null;
  let obstacles = null;
  const opened = new Set();
  const closed = new Set();

  const update = () => attempt(grid, signal, async () => {
    found = await ask('/api/cluster', { by: parameters().by }, { signal });
    choices();
    draw();
  });

  function choices() {
    replace(by, found.labels.length ? found.labels.map((label) => h('option', { value: label, selected: label === found.label }, label)) : h('option', { value: '' }, 'nothing: no label'));
    const chosen = parameters().pod || '';
    const names = [...found.pending];
    if (chosen && !names.includes(chosen)) names.unshift(chosen);
    const more = found.pendingTotal - found.pending.length;
    replace(pods, h('option', { value: '' }, found.pendingTotal ? `choose one of ${counted(found.pendingTotal, 'pod')}${more > 0 ? `; the ${found.pending.length} most important are listed` : ''}` : 'none is pending'), names.map((name) => h('option', { value: name, selected: name === chosen }, name)));
    pods.value = chosen;
  }

  async function stand() {
    const { pod } = parameters();
    obstacles = null;
    if (!pod) {
      replace(standing);
      draw();
      return;
    }
    replace(standing, h('p', { class: 'muted' }, `Planning again for ${pod}.`));
    await attempt(standing, signal, async () => {
      const answer = await ask('/api/pending', { pod }, { signal });
      obstacles = new Map();
      const reasons = Object.entries(answer.nodes).sort((a, b) => b[1].length - a[1].length);
      reasons.forEach(([reason, names], place) => names.forEach((name) => obstacles.set(name, { reason, sign: signOf(reason, place) })));
      replace(standing, h('section', { class: 'card' },
        h('h2', null, pod, ' ', h('a', { class: 'state', href: link('/story', { what: pod }) }, 'its story')),
        h('ul', { class: 'obstacles' }, reasons.map(([reason, names], place) => h('li', null, h('span', { class: `cell ${kindOf(reason)}`, 'aria-hidden': 'true' }, h('span', { class: 'sign' }, signOf(reason, place))), ` ${reason}: ${counted(names.length, 'node')}`))),
        h('details', null, h('summary', null, 'In words, and what would unblock it'), pendingAnswer(answer.found))));
    });
    draw();
  }

  function draw() {
    if (!found) return;
    const evicted = evictions(store.newest());
    const text = (parameters().find || '').toLowerCase();
    const places = found.groupNames.map(() => []);
    found.names.forEach((name, place) => { if (!text || name.includes(text)) places[found.groups[place]].push(place); });
    const shown = places.filter((group) => group.length).length;
    summary.textContent = `${counted(found.nodesTotal, 'node')} in ${counted(shown, 'group')}, read ${age(seconds(found.at))} ago; ${store.loaded ? counted([...evicted.values()].reduce((sum, list) => sum + list.length, 0), 'eviction') : 'evictions are being read,'} in the last hour${found.warnings.length ? `; ${found.warnings[0]}` : ''}`;
    const held = document.activeElement?.dataset?.node;
    replace(grid, found.groupNames.map((name, group) => (places[group].length ? drawGroup(name, places[group], evicted, shown) : null)));
    if (held) [...grid.querySelectorAll('button[data-node]')].find((one) => one.dataset.node === held)?.focus({ preventScroll: true });
  }

  function drawGroup(name, places, evicted, groups) {
    const key = `${found.label}=${name}`;
    const open = opened.has(key) || (!closed.has(key) && found.names.length <= MOST_OPEN);
    const cpu = Math.round(places.reduce((sum, place) => sum + found.cpu[place], 0) / places.length);
    const memory = Math.round(places.reduce((sum, place) => sum + found.memory[place], 0) / places.length);
    const gone = places.reduce((sum, place) => sum + (evicted.get(found.names[place])?.length || 0), 0);
    const cells = h('div', { class: 'cells', role: 'group', 'aria-label': `Nodes of ${name || 'the cluster'}; arrow keys move` });
    const details = h('details', { class: 'group', open, ontoggle: () => {
      (details.open ? opened : closed).add(key);
      (details.open ? closed : opened).delete(key);
      if (details.open && !cells.childElementCount) fill(cells, places, evicted);
    } },
    h('summary', null, h('b', null, name || (found.label ? `no ${found.label}` : 'all nodes')),
      h('span', { class: 'muted' }, ` ${counted(places.length, 'node')}, cpu ${cpu} %, memory ${memory} %`), gone ? h('span', { class: 'gone' }, ` ${counted(gone, 'eviction')}`) : null),
    cells);
    if (open) fill(cells, places, evicted);
    return details;
  }

  async function fill(cells, places, evicted) {
    cells.addEventListener('keydown', (event) => move(event, cells));
    // Made in pieces, and put in at once: the browser lays a group out one time.
    const made = document.createDocumentFragment();
    const shown = places.slice(0, MOST_CELLS);
    for (let at = 0; at < shown.length; at += CELLS_AT_ONCE) {
      if (at) await pause();
      if (signal.aborted || (at && !cells.isConnected)) return;
      made.append(...shown.slice(at, at + CELLS_AT_ONCE).map((place, number) => cell(place, evicted, at + number)));
    }
    cells.append(made);
    if (places.length > MOST_CELLS) cells.append(h('p', { class: 'muted' }, `${counted(places.length - MOST_CELLS, 'node')} more: narrow them down by name.`));
  }

  function cell(place, evicted, number) {
    const name = found.names[place];
    const full = Math.max(found.cpu[place], found.memory[place]);
    const here = evicted.get(name) || [];
    const gone = here.length;
    const obstacle = obstacles?.get(name);
    const marks = [found.marks[place] & 1 ? 'cordoned' : '', found.marks[place] & 2 ? 'tainted' : ''].filter(Boolean);
    const label = [name, `${full} % requested`, counted(found.pods[place], 'pod'), ...marks, gone ? `${counted(gone, 'eviction')} in the last hour` : '', obstacle ? obstacle.reason : ''].filter(Boolean).join(', ');
    const sign = obstacle ? obstacle.sign : gone ? String(Math.min(gone, 99)) : marks.length ? '×' : '';
    const kinds = `${obstacle ? kindOf(obstacle.reason) : ''} ${gone && !obstacle ? 'gone' : ''} ${marks.length ? 'marked' : ''}`;
    const properties = { type: 'button', 'data-node': name, 'aria-label': label, title: label, tabindex: number === 0 ? '0' : '-1', onclick: () => openNode(name) };
    const level = h('span', { class: 'level', style: { height: `${Math.min(100, full)}%` } });
    if (found.names.length > ROOMY) {
      return h('button', { ...properties, class: `cell ${kinds}` }, level, sign ? h('span', { class: 'sign' }, sign) : null);
    }
    return h('button', { ...properties, class: `roomy ${kinds}` },
      h('span', { class: 'name' }, h('span', { class: `cell ${kinds}` }, level, sign ? h('span', { class: 'sign' }, sign) : null), h('b', null, name)),
      meter('cpu', found.cpu[place]), meter('memory', found.memory[place]),
      obstacle ? h('span', { class: 'said' }, obstacle.reason) : null,
      here.slice(0, 2).map(({ victim, entry }) => h('span', { class: 'said' }, `− ${victim.name} for ${entry.name || entry.queue}`)),
      gone > 2 ? h('span', { class: 'said' }, `and ${gone - 2} more`) : null);
  }

  function meter(name, percent) {
    return h('span', { class: 'meter' }, h('span', null, name), h('span', { class: 'bar' }, h('span', { class: 'used', style: { width: `${Math.min(100, percent)}%` } })), h('span', null, `${percent} %`));
  }

  async function openNode(name) {
    remember({ node: name });
    panel.hidden = false;
    replace(panel, h('p', { class: 'muted' }, `Looking at ${name}.`));
    try {
      const node = await ask('/api/node', { name }, { signal });
      replace(panel, drawNode(node, evictions(store.newest()).get(name) || [], obstacles?.get(name), close));
      panel.querySelector('h2').focus();
    } catch (error) {
      if (!signal.aborted) replace(panel, failure(error), h('button', { type: 'button', onclick: close }, 'Close'));
    }
  }

  function close() {
    const { node } = parameters();
    panel.hidden = true;
    remember({ node: '' });
    [...grid.querySelectorAll('button[data-node]')].find((one) => one.dataset.node === node)?.focus();
  }
  panel.addEventListener('keydown', (event) => { if (event.key === 'Escape') close(); });

  const timer = setInterval(() => { if (store.live) update(); }, EVERY_MILLISECONDS);
  const stop = store.subscribe(() => {
    if (!store.loaded) return;
    stop();
    draw();
  });
  signal.addEventListener('abort', () => { clearInterval(timer); stop(); });
  await update();
  const { pod, node } = parameters();
  if (pod) await stand();
  if (node) await openNode(node);
}

// Arrow keys move among the nodes of a group, so that Tab passes each group in one step.
function move(event, cells) {
  const all = [...cells.querySelectorAll('button')];
  const at = all.indexOf(document.activeElement);
  if (at < 0) return;
  const wide = Math.max(1, all.findIndex((one) => one.offsetTop > all[0].offsetTop));
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + wide, ArrowUp: at - wide, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const next = all[Math.min(all.length - 1, Math.max(0, to))];
  all[at].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// Pods that were evicted lately, and for whom, by node.
function evictions(entries) {
  const since = Date.now() - 1000 * LATELY_SECONDS;
  const found = new Map();
  for (const entry of entries) {
    if (entry.time < since) break;
    if (!['succeeded', 'live', 'preempted'].includes(entry.result)) continue;
    for (const victim of entry.victims || []) {
      if (!found.has(victim.node)) found.set(victim.node, []);
      found.get(victim.node).push({ victim, entry });
    }
  }
  return found;
}

function signOf(reason, place) {
  if (reason === FITS) return '✓';
  if (reason === HELPS) return '○';
  return 'abcdefghijklmnopqrstuvwxyz'[place % 26];
}

function kindOf(reason) {
  return reason === FITS ? 'fits' : reason === HELPS ? 'helps' : 'obstacle';
}

function legend() {
  const one = (kind, sign, height, text) => h('span', null, h('span', { class: `cell ${kind}`, 'aria-hidden': 'true' }, h('span', { class: 'level', style: { height } }), sign ? h('span', { class: 'sign' }, sign) : null), text);
  return h('p', { class: 'legend' }, one('', '', '70%', 'how full, by cpu or memory'), one('gone', '2', '70%', 'evictions in the last hour'), one('marked', '×', '70%', 'cordoned or tainted'));
}

function drawNode(node, gone, obstacle, close) {
  const amounts = Object.entries(node.allocatable).filter(([name]) => node.requested[name] && node.requested[name] !== '0' || ['cpu', 'memory'].includes(name));
  return [
    h('div', { class: 'head' }, h('h2', { tabindex: '-1' }, node.name), h('button', { type: 'button', onclick: close }, 'Close')),
    obstacle ? h('p', { class: 'notice' }, `For the chosen pod: ${obstacle.reason.charAt(0).toLowerCase()}${obstacle.reason.slice(1)}.`) : null,
    node.cordoned ? h('p', null, 'It is cordoned.') : null,
    node.taints.length ? h('p', { class: 'muted' }, `Taints: ${node.taints.join(', ')}`) : null,
    h('dl', { class: 'facts' }, amounts.map(([name, most]) => [h('dt', null, name), h('dd', null, `${node.requested[name] || 0} of ${most} requested`)])),
    gone.length ? [
      h('h3', null, 'Evicted pods'),
      table('Evictions on this node', [['Pod', 'name'], ['For', 'name'], ['Age', 'number'], ['Result', '']], gone.slice(0, 50).map(({ victim, entry }) => [
        [podLink(victim), ' ', copied([victim])], h('a', { href: link('/story', { what: entry.orderId || entry.decisionId }) }, who(entry)),
        h('time', { datetime: entry.at, title: whole(entry.at) }, age(seconds(entry.at))), result(entry.result)]))] : null,
    h('h3', null, counted(node.podsTotal, 'pod')),
    node.podsTotal ? table('Pods of this node, the least important first', [['Pod', 'name'], ['Priority', 'number'], ['CPU', 'number'], ['Memory', 'number']], node.pods.slice(0, 200).map((pod) => [
      [podLink(pod), pod.terminating ? h('span', { class: 'muted' }, ' terminating') : null],
      pod.priority.toLocaleString('en'), pod.cpu, pod.memory])) : null,
  ];
}
