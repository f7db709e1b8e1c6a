// The timeline in the browser: all of it comes in pieces, then what changes. Bounded.

import { ask } from './net.js';

const MOST = 10_500;
const TELL_MILLISECONDS = 250;
const AGAIN_MILLISECONDS = 10_000;

export class Store {
  constructor() {
    this.entries = new Map();
    this.state = 'connecting';
    this.loaded = false; // the server has read the streams, and all of it is here
    this.live = true;
    this.listeners = new Set();
    this.timer = 0;
    this.sorted = null;
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  // Calls `update` now, and soon after a change while the page is live: `least` ms apart, and every `most` ms.
  async refresh(update, signal, least, most) {
    let asked = 0;
    let waiting = 0;
    const ask = () => { waiting = 0; asked = Date.now(); return update(); };
    const soon = () => {
      if (this.live && !waiting) waiting = setTimeout(ask, Math.max(0, asked + least - Date.now()));
    };
    const timer = setInterval(soon, most);
    const stop = this.subscribe(soon);
    signal.addEventListener('abort', () => { clearInterval(timer); clearTimeout(waiting); stop(); });
    await ask();
  }

  // All entries, the newest first. Sorted when first asked for after a change.
  newest() {
    if (this.sorted === null) {
      this.sorted = [...this.entries.values()].sort((a, b) => b.time - a.time || b.revision - a.revision);
    }
    return this.sorted;
  }

  start() {
    this.entries.clear();
    const source = new EventSource('/api/events');
    source.onopen = () => this.say('connected');
    source.addEventListener('changes', (event) => this.take(JSON.parse(event.data)));
    source.addEventListener('reset', () => { source.close(); this.start(); });
    source.onerror = async () => {
      this.say('disconnected');
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(() => this.start(), AGAIN_MILLISECONDS);
      await ask('/api/session').catch((error) => { if (error.status === 401) this.say('logged out'); });
    };
  }

  take(changes) {
    changes.removed.forEach((key) => this.entries.delete(key));
    this.loaded ||= changes.loaded;
    for (const entry of changes.entries) this.put(entry);
    if (this.entries.size > MOST) {
      for (const entry of this.newest().slice(MOST)) this.entries.delete(entry.key);
    }
    this.tell();
  }

  put(entry) {
    entry.time = Date.parse(entry.at);
    this.entries.set(entry.key, entry);
  }

  say(state) {
    if (this.state === state) return;
    this.state = state;
    this.tell();
  }

  // Views are told a few times a second at most, and not while the page is paused.
  tell() {
    this.sorted = null;
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      for (const listener of this.listeners) listener();
    }, TELL_MILLISECONDS);
  }
}
