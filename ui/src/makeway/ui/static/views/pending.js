// What would become of a pod now, as a simulation says it; and what would unblock it.

import { h, result, table } from '../dom.js';
import { counted, spaced } from '../format.js';
import { link } from '../net.js';
import { podLink } from '../pods.js';

const SAYS = { fits: 'There is room for it', waits: 'Room for it is on its way, from pods that leave anyway', preempts: 'Room can be made for it', refused: 'No pod that may be evicted makes room for it' };

export function podAnswer(answer) {
  const columns = [['Victim', 'name'], ['Priority', 'number'], ['Node', 'name'], ['Rule', 'text']];
  return [
    h('p', { class: 'answer' }, result(answer.result === 'fits' ? 'succeeded' : ['preempts', 'waits'].includes(answer.result) ? 'planned' : 'refused'), ' ',
      h('b', null, SAYS[answer.result]), answer.node ? [' on ', h('a', { href: link('/cluster', { node: answer.node }) }, answer.node)] : '', '.'),
    answer.diagnosis ? h('p', null, `${spaced(answer.diagnosis.reason)}: ${answer.diagnosis.message}`) : null,
    answer.victims.length ? table('Victims', columns, answer.victims.map((victim) => [
      podLink(victim),
      victim.priority, victim.node, [spaced(victim.rule), victim.pdbViolating ? ', violates a budget' : '']])) : null,
    answer.candidatesTotal > 1 ? h('p', { class: 'muted' }, `Best of ${counted(answer.candidatesTotal, 'node')}${answer.candidates[0]?.decidedBy ? `, by ${spaced(answer.candidates[0].decidedBy).toLowerCase()}` : ''}.`) : null,
    answer.result === 'preempts' && answer.mode !== 'enforce' ? h('p', { class: 'muted' }, `In mode ${answer.mode} makeway does not do it by itself.`) : null,
    inTheWay(answer),
    (answer.warnings || []).map((warning) => h('p', { class: 'muted' }, `Note: ${warning}`)),
  ];
}

function inTheWay(answer) {
  return answer.result === 'fits' ? null : byNodes('What stands in the way, by nodes', { ...answer.diagnosis?.nodeReasons, ...answer.nodesExcluded });
}

// Reasons with the numbers of their nodes, the greatest first.
export function byNodes(caption, counts) {
  const rows = Object.entries(counts).sort((a, b) => b[1] - a[1]).slice(0, 20);
  return rows.length ? table(caption, [['In the way', 'text'], ['Nodes', 'number']], rows) : null;
}

export function pendingAnswer({ answer, unblockedBy }) {
  return [
    podAnswer(answer),
    answer.result !== 'refused' ? null : unblockedBy.length ? [
      h('h4', null, 'Would unblock it, each by itself'),
      h('ul', null, unblockedBy.map((one) => h('li', null, `${one.change.text}; then ${one.victims.length ? `room is made on ${one.node} without ${one.victims.slice(0, 5).map((victim) => `${victim.namespace}/${victim.name}`).join(', ')}` : `it fits${one.node ? ` on ${one.node}` : ''}`}`))),
    ] : h('p', { class: 'muted' }, 'No single change was found that would unblock it.'),
  ];
}
