# Hashes of arrays of hashes, regular expressions, sorting, joining.
use strict;
use warnings;

my $seed = 7;
sub number { $seed = ($seed * 1103515245 + 12345) & 0x7FFFFFFF; return $seed >> 8; }

my @words = map { join '', map { chr(97 + number() % 26) } 1 .. 2 + number() % 12 } 1 .. 3000;
my %people;
for my $i (1 .. 22000) {
    my $name = "$words[number() % @words] $words[number() % @words]";
    push @{ $people{$name} }, { id => $i, tags => [map { $words[number() % @words] } 1 .. number() % 6], note => 'x' x (number() % 300) };
}
print scalar(keys %people), "\n";

my $lines = '';
for my $name (sort keys %people) {
    for my $entry (@{ $people{$name} }) {
        $lines .= join("\t", $name, $entry->{id}, join(',', sort @{ $entry->{tags} }), length $entry->{note}) . "\n";
    }
}
print length $lines, "\n";

my (%by, $matches);
for my $round (1 .. 3) {
    for my $line (split /\n/, $lines) {
        my ($name, $id, $tags, $length) = split /\t/, $line;
        $by{$_}{$id} = $length for split /,/, $tags;
        $matches++ if $name =~ /([aeiou])[^ ]*\1/;
        (my $changed = $line) =~ s/(\w+)/<$1>/g;
        $matches += length($changed) % 7;
    }
    %by = () if $round % 2;
}
print scalar(keys %by), " $matches\n";
