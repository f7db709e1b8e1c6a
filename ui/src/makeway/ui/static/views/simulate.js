// What would happen if pods were created. Nothing is.

import { announce, failure, h, replace } from '../dom.js';
import { ask, parameters, remember } from '../net.js';
import { podAnswer } from './pending.js';

export const title = 'Simulate';
export const lead = 'What would happen if a pod were created: where it fits, or which pods would be evicted for it. Nothing is created.';

const EXAMPLE = `apiVersion: v1
kind: Pod
metadata:
  name: urgent
spec:
  priority: 1000
  containers:
    - name: main
      image: example.com/urgent
      resources:
        requests: {cpu: "2", memory: 1Gi}
`;

export async function show({ body, signal }) {
  const manifest = h('textarea', { name: 'manifest', rows: '16', spellcheck: 'false', autocomplete: 'off', required: true, 'aria-describedby': 'manifest-help', value: EXAMPLE });
  const namespace = h('input', { name: 'namespace', value: parameters().namespace || 'default', autocomplete: 'off', spellcheck: 'false' });
  const button = h('button', { type: 'submit', class: 'primary' }, 'Simulate');
  const content = h('div', { class: 'answers', 'aria-live': 'polite', 'aria-busy': 'false' });
  const form = h('form', { class: 'stack', onsubmit: run },
    h('label', { for: 'manifest' }, 'Manifest'), manifest,
    h('p', { class: 'muted', id: 'manifest-help' }, 'Pods as YAML or JSON, or a Deployment, StatefulSet or Job with few replicas. Judged by resources, ports, selectors, affinity, taints, topology spread and queues; not by volumes and devices.'),
    h('label', null, 'Namespace where the manifest has none ', namespace), button);
  manifest.id = 'manifest';
  body.append(h('div', { class: 'columns' }, form, content));

  async function run(event) {
    event.preventDefault();
    remember({ namespace: namespace.value.trim() });
    button.disabled = true;
    content.setAttribute('aria-busy', 'true');
    replace(content, h('p', { class: 'muted' }, 'Reading the cluster, and planning.'));
    try {
      const answer = await ask('/api/simulate', {}, {
        method: 'POST', signal, headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ manifest: manifest.value, namespace: namespace.value.trim() || 'default' }),
      });
      replace(content, answer.pods.map((pod) => h('section', { class: 'card' }, h('h2', null, `${pod.namespace}/${pod.name} `, h('span', { class: 'state' }, `priority ${pod.preemptor.priority}${pod.queue ? `, ${pod.queue}` : ''}`)), podAnswer(pod))));
      announce(`${answer.pods.length} answered`);
    } catch (error) {
      if (!signal.aborted) replace(content, failure(error));
    } finally {
      button.disabled = false;
      content.setAttribute('aria-busy', 'false');
    }
  }
}
