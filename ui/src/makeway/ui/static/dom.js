// Elements made by hand: text is always set as text, so nothing that a cluster says becomes markup.

const SVG = 'http://www.w3.org/2000/svg';

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

function dress(element, properties) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value') element.value = value;
    else if (name === 'style') for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  return element;
}

export function h(tag, properties, ...children) {
  return put(dress(document.createElement(tag), properties), children);
}

export function svg(tag, properties, ...children) {
  return put(dress(document.createElementNS(SVG, tag), properties), children);
}

export function replace(parent, ...children) {
  parent.replaceChildren();
  return put(parent, children);
}

export function announce(text) {
  const announcer = document.getElementById('announcer');
  if (announcer.textContent !== text) announcer.textContent = text;
}

// Fills a part of the page; what goes wrong is said there.
export async function attempt(part, signal, fill) {
  try {
    await fill();
  } catch (error) {
    if (!signal.aborted) replace(part, failure(error));
  }
}

// A table with a caption that is read out; `columns`: [title, class]; `rows`: as `row` makes them, or arrays of cells.
export function table(caption, columns, rows, extra = {}) {
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', extra,
      h('caption', { class: 'unseen' }, caption),
      h('thead', null, h('tr', null, columns.map(([title, kind]) => h('th', { scope: 'col', class: kind }, title)))),
      h('tbody', null, rows.map((one) => (one instanceof Node ? one : row(columns, one))))));
}

// The first cell is the row's header.
export function row(columns, cells, properties) {
  return h('tr', properties, cells.map((cell, place) => h(place === 0 ? 'th' : 'td',
    { class: columns[place][1], scope: place === 0 ? 'row' : null }, cell)));
}

export function failure(error) {
  return h('p', { class: 'notice bad', role: 'alert' }, mark('failed'), ' ', error.message || String(error));
}

export function tile(name, number, text, kind = '') {
  return h('div', { class: `tile ${kind}` }, h('dt', null, name), h('dd', null, h('b', null, number.toLocaleString('en')), h('span', null, text)));
}

export function empty(text) {
  return h('p', { class: 'empty' }, text);
}

const MARKS = {
  succeeded: ['✓', 'good'], deleted: ['✓', 'good'], same: ['=', ''], equal: ['=', ''], better: ['▲', 'good'],
  worse: ['▼', 'bad'], live: ['●', 'accent'], planned: ['○', ''], failed: ['✕', 'bad'], expired: ['✕', 'bad'],
  overdue: ['!', 'bad'], refused: ['–', 'warn'], cancelled: ['–', ''], preempted: ['◆', ''], observed: ['◇', ''],
  notCarriedOut: ['·', ''],
};

const WORDS = {
  live: 'in flight', overdue: 'no outcome', notCarriedOut: 'not carried out', notNeeded: 'not needed',
  bestEffort: 'best effort', makewayOnly: 'makeway only', defaultOnly: 'default only',
  spared: 'exempt', notAttempted: 'not attempted',
};

export function word(result) {
  return WORDS[result] || result;
}

export function mark(result) {
  const [sign, kind] = MARKS[result] || ['·', ''];
  return h('span', { class: `mark ${kind}`, 'aria-hidden': 'true' }, sign);
}

// What became of something: a sign and a word, so that no meaning is in a colour alone.
export function result(value) {
  return h('span', { class: 'result' }, mark(value), word(value));
}
