// All that is known of one pod, one order or one decision.

import { attempt, empty, h, replace, result, table } from '../dom.js';
import { counted, spaced, whole } from '../format.js';
import { ask, link, parameters, remember } from '../net.js';
import { copied, podLink } from '../pods.js';
import { byNodes, pendingAnswer } from './pending.js';

export const title = 'Story';
export const lead = 'Why a pod was preempted, or why it is still pending.';

const STATES = {
  preempted: 'was preempted', pending: 'is pending', placed: 'has a node', order: 'an order', decision: 'a decision',
};

export async function show({ body, signal }) {
  const input = h('input', { name: 'what', value: parameters().what || '', autocomplete: 'off', spellcheck: 'false', required: true, class: 'long', placeholder: 'namespace/pod, ord-… or dec-…' });
  const content = h('div', { 'aria-live': 'polite' });
  body.append(
    h('form', { class: 'filters', onsubmit: (event) => { event.preventDefault(); remember({ what: input.value.trim() }); look(); } },
      h('label', null, 'Pod, order or decision ', input), h('button', { type: 'submit', class: 'primary' }, 'Show')),
    content);

  async function look() {
    const { what } = parameters();
    if (!what) {
      replace(content, empty('Give a pod, also one that is gone, as namespace/name; or the id of an order or decision, or its beginning.'));
      return;
    }
    replace(content, h('p', { class: 'muted' }, `Looking at ${what}.`));
    await attempt(content, signal, async () => {
      replace(content, told(await ask('/api/story', { what }, { signal }), signal));
    });
  }
  await look();
}

function told(story, signal) {
  const parts = [h('h2', null, story.name ? `${story.namespace ? `${story.namespace}/` : ''}${story.name}` : 'unknown', ' ', h('span', { class: 'state' }, STATES[story.state] || story.state), ' ', story.name && story.state !== 'group' ? copied([story]) : null)];
  for (const taken of story.takenBy) parts.push(order(taken, story, `Preempted by order ${taken.order.orderId}`));
  for (const other of story.preemptedByOthers || []) parts.push(byOther(other, 'Preempted by another'));
  for (const made of story.madeRoom) parts.push(order(made, null, `Room made by order ${made.order.orderId}`));
  for (const other of (story.servedByOthers || []).slice(-1)) parts.push(byOther(other, 'Room made by another'));
  if (story.state === 'pending') parts.push(pendingPart(story, signal));
  if (story.lastDecision) parts.push(decision(story.lastDecision, story.state === 'decision' ? 'Decision' : 'Last decision'));
  if (parts.length === 1) parts.push(empty('No order concerns it, and no preemption by others was seen.'));
  return parts;
}

function facts(pairs) {
  return h('dl', { class: 'facts' }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => [h('dt', null, name), h('dd', null, value)]));
}

function pod(one) {
  return one ? h('span', null, podLink(one), h('span', { class: 'muted' }, ` priority ${one.priority}`)) : null;
}

// Whom an order or a decision makes room for: a pod, or all members of a group; null for a queue.
function whom(one) {
  if (one.preemptor || !one.group) return pod(one.preemptor);
  return h('span', null, `group ${one.group.namespace}/${one.group.name}`, h('span', { class: 'muted' }, ` priority ${one.group.priority}`));
}

function order({ order: one, outcome, decision: decided, overdue }, mine, heading) {
  const became = new Map((outcome?.victims || []).map((victim) => [victim.uid, victim]));
  const columns = [['Victim', 'name'], ['Priority', 'number'], ['Node', 'name'], ['Rule', 'text'], ['What became of it', 'text']];
  return h('section', { class: 'card' },
    h('h3', null, heading),
    facts([
      ['For', whom(one) || `queue ${one.queue}, whose maximum was lowered`],
      ['On', one.node ? h('a', { href: link('/cluster', { node: one.node }) }, one.node) : (one.members || []).length ? `${counted(new Set(one.members.map((member) => member.node)).size, 'node')}, for ${counted(one.members.length, 'member')}` : null],
      ['Ordered', whole(one.createdAt)],
      ['Ended', outcome ? [result(outcome.result), ` ${whole(outcome.finishedAt)}`] : one.void ? 'never: it was not stored' : overdue ? 'no outcome in time: does an evictor run?' : 'no outcome yet'],
      ['Because', one.void ? `${spaced(one.void.reason)}: ${one.void.message}` : outcome && outcome.result !== 'succeeded' ? outcome.message || outcome.reason : null],
      ['Rolled back', outcome?.rollback ? `nomination ${outcome.rollback.nominationReverted ? 'reverted' : 'left as it was'}, ${counted((outcome.rollback.conditionsCleared || []).length, 'condition')} cleared` : null],
      ['Awaits', (one.awaited || []).length ? counted(one.awaited.length, 'pod') + ' that leave anyway' : null],
      ['Budgets', one.pdbViolations ? counted(one.pdbViolations, 'violation') : null],
    ]),
    table('Victims', columns, (one.victims || []).map((victim) => {
      const end = became.get(victim.uid);
      const self = mine && victim.uid === mine.uid;
      return [
        [podLink(victim), ' ', copied([victim]), self ? h('b', null, ' this pod') : null],
        victim.priority, victim.node, [spaced(victim.rule), victim.pdbViolating ? ', violates a budget' : '', victim.unit ? `, evicted as a whole with ${victim.unit}` : '', victim.closes ? `, keeps ${victim.closes.key}=${victim.closes.value || ''} closed to the group` : ''],
        end ? [result(end.result), end.message || end.reason ? ` ${end.message || end.reason}` : ''] : '–'];
    })),
    decided ? considered(decided) : null);
}

function decision(one, heading) {
  return h('section', { class: 'card' },
    h('h3', null, heading),
    facts([
      ['Id', h('code', null, one.decisionId)], ['At', whole(one.at)], ['For', whom(one) || `queue ${one.queue}`],
      ['Mode', one.mode], ['Answer', one.diagnosis ? [result('refused'), ` ${spaced(one.diagnosis.reason)}`] : one.groupPlan ? `room for ${counted((one.groupPlan.placements || []).reduce((sum, place) => sum + place.count, 0), 'member')} of ${one.groupPlan.members}` : one.nominatedNode ? `room on ${one.nominatedNode}` : `${counted(one.unmodelledTotal || 0, 'node')} that only the scheduler's filters can judge`],
      ['Because', one.diagnosis?.message],
      ['Nodes', one.nodesTotal ? `${one.nodesPotential || 0} of ${one.nodesTotal} could be helped by removing pods` : null],
    ]),
    byNodes('What stood in the way, by nodes', one.diagnosis?.nodeReasons || {}),
    considered(one));
}

function considered(one) {
  const [best, ...rest] = one.candidates || [];
  if (!best) return null;
  const columns = [['Node', 'name'], ['Victims', 'text'], ['Budget violations', 'number'], ['Exempt pods', 'text']];
  return h('details', { open: true },
    h('summary', null, one.candidatesTotal === 1 ? `${best.node} was the only node on which that made room` : `${best.node} was the best of ${counted(one.candidatesTotal || 1, 'node')}${best.decidedBy ? `, by ${spaced(best.decidedBy).toLowerCase()}` : ''}`),
    table('Candidates, best first', columns, [best, ...rest].slice(0, 8).map((candidate) => [
      candidate.node,
      (candidate.victims || []).map((victim) => `${victim.namespace}/${victim.name} (${victim.priority})`).slice(0, 5).join(', ') || '–',
      candidate.pdbViolations || 0,
      h('ul', { class: 'plain' }, (candidate.spared || []).slice(0, 3).map((spared) => h('li', null, `${spared.namespace}/${spared.name}: ${spaced(spared.rule)}; ${spared.detail}`)))])));
}

function byOther(one, heading) {
  const theirs = one.defaultPreemption;
  return h('section', { class: 'card' },
    h('h3', null, heading),
    facts([
      ['By', one.preemptor.schedulerName], ['For', pod(one.preemptor)], ['On', theirs?.node], ['At', whole(one.plannedAt)],
      ['Took', (theirs?.victims || []).map((victim) => `${victim.namespace}/${victim.name}`).slice(0, 10).join(', ')],
      ['makeway', one.refusal ? `would have refused: ${one.refusal.message}` : one.makeway ? `would have taken ${(one.makeway.victims || []).map((victim) => `${victim.namespace}/${victim.name}`).slice(0, 10).join(', ') || 'no pod'} on ${one.makeway.node}: ${one.result}` : null],
    ]));
}

function said(condition) {
  return condition ? `${condition.reason}: ${condition.message || ''}` : null;
}

function pendingPart(story, signal) {
  const content = h('div', { 'aria-live': 'polite' }, h('p', { class: 'muted' }, 'Planning again, with the cluster as it is now.'));
  const what = `${story.namespace}/${story.name}`;
  attempt(content, signal, async () => {
    const { found } = await ask('/api/pending', { pod: what }, { signal });
    replace(content, pendingAnswer(found), h('p', null, h('a', { href: link('/cluster', { pod: what }) }, 'See on the grid of nodes what stands in the way')));
  });
  return h('section', { class: 'card' },
    h('h3', null, 'Why it is pending'),
    facts([
      ['Held', said(story.held)], ['Its order waits', said(story.waitsFor)],
      ['Waits for', story.leaving ? `${counted(story.leaving, 'evicted pod')} to leave` : null], ['Brake', story.brake],
      ['Delayed', story.delayed], ['No plan', story.unplanned], ['Scheduler says', story.condition], ['Group', story.group]]),
    content);
}
