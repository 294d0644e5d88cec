#!/usr/bin/perl
# A client that keeps one connection and knows every answer beforehand: client.pl SERVER FILE [PORT]. It asks until FILE is there,
# or, if FILE is a number, so many times, and ends with "N answers, longest wait T ms"; an answer that is missing, wrong or repeated
# ends it with a sentence and 1. It wants no more than a bare Debian has (perl-base).
use strict;
use warnings;
use IO::Socket::INET;
use Time::HiRes qw(time sleep);

my ($server, $enough, $port) = @ARGV;
my %port = (redis => 6379, memcached => 11211, nginx => 80, mosquitto => 1883);
my ($socket, $tries) = (undef, 100);
until ($socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port || $port{$server})) {
    $tries-- or die "cannot connect: $!\n";
    sleep 0.1;
}
my $key = "client$$";
$socket->autoflush(1);
$SIG{ALRM} = sub { die "no answer for 30 seconds\n" };
$SIG{PIPE} = 'IGNORE';

sub line {
    my $line = <$socket>;
    defined $line or die "the connection was closed\n";
    return $line;
}

sub bytes {
    my ($count) = @_;
    my $got = '';
    while (length $got < $count) {
        read($socket, $got, $count - length $got, length $got) or die "the connection was closed\n";
    }
    return $got;
}

sub same {
    my ($got, $wanted) = @_;
    $got eq $wanted or die "it said " . unpack('H*', $got) . " and not " . unpack('H*', $wanted) . "\n";
}

my %ask = (
    redis => sub {
        print $socket "INCR $key\r\n";
        same(line(), ":$_[0]\r\n");
    },
    memcached => sub {
        print $socket "incr $key 1\r\n";
        same(line(), "$_[0]\r\n");
    },
    nginx => sub {
        print $socket "GET /understudy.txt HTTP/1.1\r\nHost: it\r\n\r\n";
        same(line(), "HTTP/1.1 200 OK\r\n");
        1 while line() ne "\r\n";
        same(bytes(6), "hello\n");
        # A server that closes a connection after so many requests says so in the answer; it is told to keep this one.
    },
    mosquitto => sub {
        my $id = $_[0] % 60000 + 1;
        print $socket pack('CC n/a n C', 0x32, 6, 't', $id, 0x78);
        same(bytes(4), pack('CCn', 0x40, 2, $id));
    },
);

alarm 30;
if ($server eq 'redis') { print $socket "DEL $key\r\n"; line(); }
if ($server eq 'memcached') { print $socket "set $key 0 0 1\r\n0\r\n"; line(); }
if ($server eq 'mosquitto') {
    print $socket pack('CC n/a CCn n/a', 0x10, 15, 'MQTT', 4, 2, 600, 'one');
    same(bytes(4), pack('CCCC', 0x20, 2, 0, 0));
}
my ($count, $longest) = (0, 0);
until ($enough =~ /^\d+$/ ? $count >= $enough : -e $enough) {
    alarm 30;
    my $begun = time;
    $ask{$server}->(++$count);
    my $took = time - $begun;
    $longest = $took if $took > $longest;
}
printf "%d answers, longest wait %.1f ms\n", $count, $longest * 1000;
