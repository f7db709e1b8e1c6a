// Pods as links to their stories, and the command that tells the same.

import { announce, h, replace, svg } from './dom.js';
import { link } from './net.js';

// What Kubernetes takes as a name: nothing else is put into a command.
const NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;

export function podLink({ namespace, name }) {
  return h('a', { href: link('/story', { what: `${namespace}/${name}` }) }, `${namespace}/${name}`);
}

// Whether an entry names a pod of a namespace, as preemptor or among the listed victims.
export function concerns(entry, namespace) {
  return entry.namespace === namespace || (entry.victims || []).some((one) => one.namespace === namespace);
}

// The first few victims; the whole of them is in the story.
export function victims(entry, most = 2) {
  const total = entry.victimsTotal || 0;
  const shown = (entry.victims || []).slice(0, most);
  if (!total) return '–';
  const more = total - shown.length;
  return [
    shown.map((one, place) => [place ? ', ' : '', podLink(one)]), more > 0 ? ` and ${more} more` : '',
    ' ', copied(shown),
  ];
}

// A button that copies `kubectl makeway why …` for each of these pods.
export function copied(pods) {
  const named = pods.filter((one) => NAME.test(one.namespace) && NAME.test(one.name));
  if (!named.length || !navigator.clipboard) return null;
  const text = named.map((one) => `kubectl makeway why -n ${one.namespace} ${one.name}`).join('\n');
  const label = `Copy ${text.replaceAll('\n', '; ')}`;
  const button = h('button', { type: 'button', class: 'copy', 'aria-label': label, title: label, onclick: copy }, icon());
  async function copy() {
    await navigator.clipboard.writeText(text);
    announce('Copied.');
    replace(button, '✓');
    setTimeout(() => replace(button, icon()), 1500);
  }
  return button;
}

// Two sheets, one behind the other: few fonts have a sign for it.
function icon() {
  return svg('svg', { viewBox: '0 0 16 16', width: 14, height: 14, class: 'icon', 'aria-hidden': 'true' },
    svg('rect', { x: 1.5, y: 1.5, width: 9, height: 9, rx: 1.5 }), svg('path', { d: 'M5.5 14.5h7a2 2 0 0 0 2-2v-7' }));
}
