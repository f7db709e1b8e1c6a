files() { cat /etc/nats/* /etc/nats-tls/* 2>/dev/null | md5sum; }
until nats-server --config=/etc/nats/nats.conf -t; do sleep 2; done
(
  was=$(files)
  while sleep 5 && kill -0 $$; do
    now=$(files)
    if [ "$now" != "$was" ] && nats-server --config=/etc/nats/nats.conf -t; then kill -HUP $$; was=$now; fi
  done
) &
exec nats-server --config=/etc/nats/nats.conf
