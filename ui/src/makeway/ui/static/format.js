// Times, ages and names as people read them.

const MINUTE = 60, HOUR = 3600, DAY = 86400;

export function seconds(from, to = Date.now()) {
  return Math.max(0, Math.floor((to - new Date(from).getTime()) / 1000));
}

// As kubectl writes ages.
export function age(span) {
  if (span < 2 * MINUTE) return `${span}s`;
  if (span < 10 * MINUTE) return `${Math.floor(span / MINUTE)}m${span % MINUTE ? `${span % MINUTE}s` : ''}`;
  if (span < 3 * HOUR) return `${Math.floor(span / MINUTE)}m`;
  if (span < 8 * HOUR) {
    const minutes = Math.floor((span % HOUR) / MINUTE);
    return `${Math.floor(span / HOUR)}h${minutes ? `${minutes}m` : ''}`;
  }
  if (span < 2 * DAY) return `${Math.floor(span / HOUR)}h`;
  return `${Math.floor(span / DAY)}d`;
}

export function clock(moment) {
  const date = new Date(moment);
  const two = (number) => String(number).padStart(2, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function whole(moment) {
  return new Date(moment).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}

export function who(entry) {
  return entry.name ? `${entry.namespace}/${entry.name}` : `queue ${entry.queue || '?'}`;
}

export function counted(number, noun) {
  return `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
}

// `NoLowerPriorityPods` as words.
export function spaced(reason) {
  const words = reason.replace(/([a-z0-9])([A-Z])/g, '$1 $2').replaceAll('-', ' ').toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export function victims(entry, most = 2) {
  const total = entry.victimsTotal || 0;
  const named = (entry.victims || []).slice(0, most).map((one) => `${one.namespace}/${one.name}`);
  const more = total - named.length;
  return [named.join(', '), more > 0 && named.length ? ` and ${more} more` : '', total ? '' : '–'].join('');
}
