# Work for perl whose output is always the same: hashes, strings, sorting, patterns, closures, a fork.
use strict;
use warnings;

my ($seed, %seen, @rows) = (7);
sub draw { $seed = ($seed * 1103515245 + 12345) % 2147483648; return int($seed / 65536) % $_[0] }

for my $i (1 .. 120000) {
    my $word = join '', map { chr(97 + draw(6)) } 0 .. draw(12);
    push @{ $seen{$word} }, $i;
    push @rows, $word if $i % 3 == 0;
}
my @most = (sort { @{ $seen{$b} } <=> @{ $seen{$a} } || $a cmp $b } keys %seen)[0 .. 4];
print scalar(keys %seen), " @most\n";

my $text = join ' ', sort @rows;
my $changed = ($text =~ s/(a+)(b+)/$2$1/g);
print length($text), " $changed ", unpack('%32C*', $text), "\n";

my @closures = map { my $n = $_; sub { $n += $_[0]; 'x' x ($n % 500) } } 1 .. 3000;
my $length = 0;
for my $round (1 .. 20) { $length += length $_->($round) for @closures }
print "$length\n";

my $grown = '';
$grown .= chr(65 + $_ % 26) x ($_ % 100) for 1 .. 20000;
print length($grown), ' ', substr($grown, 123456, 10), "\n";

pipe my $read, my $write or die;
my $pid = fork // die;
if (!$pid) { print $write join(',', map { $_ * $_ } 1 .. 2000); exit 0 }
close $write;
my $sent = join '', <$read>;
waitpid $pid, 0;
print length($sent), " $?\n";
undef %seen;
exit 3;
