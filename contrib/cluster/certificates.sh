#!/bin/sh
# Makes the keys and certificates of a cluster: certificates.sh FOLDER NODE...
#
# The first time an authority is made, whose key signs every node's certificate. Keep authority.key away from the nodes: a
# node needs authority.pem, NODE.pem and NODE.key.
set -eu

[ $# -ge 2 ] || { echo "usage: $0 FOLDER NODE..." >&2; exit 2; }
folder=$1
shift
umask 077
mkdir -p "$folder"
cd "$folder"
days=3650
curve="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"

if ! [ -e authority.pem ]; then
    # shellcheck disable=SC2086
    openssl req -x509 $curve -keyout authority.key -out authority.pem -days $days -subj "/CN=understudy" \
        -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null
fi
for node in "$@"; do
    if [ -e "$node.pem" ]; then
        echo "$folder/$node.pem is there already" >&2
        continue
    fi
    printf 'subjectAltName=DNS:%s\nbasicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n' \
        "$node" >"$node.ext"
    # shellcheck disable=SC2086
    openssl req $curve -keyout "$node.key" -out "$node.csr" -subj "/CN=$node" 2>/dev/null
    openssl x509 -req -in "$node.csr" -CA authority.pem -CAkey authority.key -CAcreateserial -days $days \
        -extfile "$node.ext" -out "$node.pem" 2>/dev/null
    rm -f "$node.csr" "$node.ext"
done
