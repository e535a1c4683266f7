#!/bin/bash
# The guest's init where payloads want systemd: lays the package over the read-only root as its installation would, then
# becomes systemd, which runs the payloads as a unit of its own.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
modprobe overlay
mount -t tmpfs -o mode=0755 tmpfs /mnt
mount -t tmpfs -o mode=0755 tmpfs /var
for directory in etc usr/bin usr/lib/systemd/system usr/lib/sysusers.d; do
  mkdir -p "/mnt/$directory/upper" "/mnt/$directory/work" "/$directory"
  mount -t overlay -o "lowerdir=/$directory,upperdir=/mnt/$directory/upper,workdir=/mnt/$directory/work" overlay "/$directory"
done
mkdir -p /var/lib /var/log /tmp/root
mount --bind /tmp/root /root
tar -x --no-overwrite-dir -C / -f /payload/package.tar ./etc ./usr/bin ./usr/lib/systemd ./usr/lib/sysusers.d
systemd-sysusers rdmascope.conf
# Without an identity this would be a first boot, at which systemd asks questions.
systemd-machine-id-setup --print > /dev/null

# rdma-core would rename the software devices that the payloads know by name.
mkdir -p /etc/udev/rules.d
ln -s /dev/null /etc/udev/rules.d/60-rdma-persistent-naming.rules
# Nobody logs in; nothing waits for a network.
systemctl --quiet mask getty@.service serial-getty@.service systemd-networkd.service systemd-logind.service
cat > /etc/systemd/system/payloads.service << END
[Unit]
Description=The payloads
[Service]
Type=oneshot
ExecStart=/bin/bash /payload/run.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
LimitMEMLOCK=infinity
LimitCORE=0
TimeoutStartSec=infinity
END
ln -s /usr/lib/systemd/system/multi-user.target /etc/systemd/system/default.target
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -s ../payloads.service /etc/systemd/system/multi-user.target.wants/payloads.service
exec /usr/lib/systemd/systemd
