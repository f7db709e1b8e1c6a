// Which view is shown, and where the focus goes when another one is.

import { announce, attempt, h, replace } from './dom.js';
import { ask, servedInCluster } from './net.js';
import { Store } from './store.js';
import * as cluster from './views/cluster.js';
import * as now from './views/now.js';
import * as observe from './views/observe.js';
import * as queues from './views/queues.js';
import * as simulate from './views/simulate.js';
import * as story from './views/story.js';
import * as timeline from './views/timeline.js';

const VIEWS = {
  '/': now, '/timeline': timeline, '/cluster': cluster, '/queues': queues, '/observe': observe,
  '/story': story, '/simulate': simulate,
};

const main = document.getElementById('main');
const store = new Store();
let leaving = new AbortController();

async function show(focus) {
  leaving.abort();
  leaving = new AbortController();
  const view = VIEWS[location.pathname] || now;
  document.title = `${view.title} · makeway`;
  for (const one of document.querySelectorAll('nav a')) {
    if (one.pathname === location.pathname) {
      one.setAttribute('aria-current', 'page');
      one.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    } else one.removeAttribute('aria-current');
  }
  const heading = h('h1', { tabindex: '-1' }, view.title);
  const body = h('div', { class: 'view' });
  replace(main, h('div', { class: 'head' }, heading, h('p', { class: 'lead' }, view.lead)), body);
  if (focus) {
    heading.focus();
    announce(view.title);
    scrollTo(0, 0);
  }
  const signal = leaving.signal;
  await attempt(body, signal, () => view.show({ body, store, signal, go }));
}

function go(address) {
  history.pushState(null, '', address);
  show(true);
}

document.addEventListener('click', (event) => {
  const anchor = event.target.closest('a');
  const plain = !event.defaultPrevented && event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
  if (!anchor || !plain || anchor.origin !== location.origin || !(anchor.pathname in VIEWS)) return;
  event.preventDefault();
  if (anchor.hash) {
    main.focus();
    return;
  }
  go(anchor.pathname + anchor.search);
});
addEventListener('popstate', () => show(true));

const live = document.getElementById('live');
live.addEventListener('click', () => {
  store.live = !store.live;
  live.setAttribute('aria-pressed', String(store.live));
  live.textContent = store.live ? 'Live' : 'Paused';
  announce(store.live ? 'The page follows what happens.' : 'The page is paused.');
  if (store.live) store.tell();
});

// Whether pods are evicted now, on every view and while the page is paused too.
const MODE_MILLISECONDS = 5_000;
const SOON_MILLISECONDS = 700;
const mode = document.getElementById('mode');

async function showMode() {
  let found = { mode: '', stops: [], byPart: [] };
  try {
    found = await ask('/api/now');
  } catch { /* What is not known is shown as that. */ }
  const text = [`mode ${found.mode || 'not known'}`, ...found.stops].join(', ');
  if (mode.textContent !== text) mode.textContent = text;
  mode.title = found.byPart.join(', ') || 'No part of makeway has answered.';
  mode.className = found.stops.length ? 'bad' : found.mode === 'enforce' ? 'good' : '';
  setTimeout(showMode, found.mode ? MODE_MILLISECONDS : SOON_MILLISECONDS);
}

const connection = document.getElementById('connection');
store.subscribe(() => {
  if (connection.textContent !== store.state) {
    connection.textContent = store.state;
    connection.className = store.state === 'connected' ? 'good' : store.state === 'connecting' ? '' : 'bad';
  }
});

// In a cluster people come with a token of their own.
ask('/api/session').then(({ form, user }) => {
  const logout = document.getElementById('logout');
  logout.hidden = !form;
  if (form) servedInCluster();
  logout.firstElementChild.title = user;
}).catch(() => {});

show(false);
showMode();
store.start();
