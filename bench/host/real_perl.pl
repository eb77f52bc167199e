# A real program for bench/host.py: hashes, nested data, strings, sorting and regular expressions. Prints figures of
# what it computed. PERL_HASH_SEED=0 keeps the order of hashes.
use strict;
use warnings;

my $state = 1;

sub below {
    my ($end) = @_;
    $state = ($state * 1103515245 + 12345) % 2147483648;
    return int($state / 65536) % $end;
}

my (%count, %place, @records);
for my $step (1 .. 150_000) {
    my $word = join '', map { chr(97 + below(12)) } 1 .. 2 + below(5);
    $count{$word}++;
    push @{$place{$word}}, $step;
    push @records, {id => $step, word => $word, tags => [map { "tag$_" } 0 .. below(4)], text => $word x below(20)}
        if $step % 3 == 0;
}
print scalar(keys %count), " words\n";

my @sorted = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print "most: @sorted[0 .. 9]\n";

my %by_tag;
push @{$by_tag{$_->{tags}[-1]}}, $_->{text} for @records;
print "$_: ", length(join ',', @{$by_tag{$_}}), "\n" for sort keys %by_tag;

my $page = join ' ', map { $_->{text} } @records[0 .. 20_000];
my $matches = 0;
$matches++ while $page =~ /([a-f]{3})([g-l]+)(?=\1)?/g;
(my $upper = $page) =~ s/(ab|cd|ef)/\U$1/g;
my %pieces;
$pieces{$_} .= "$_;" for split /[aeiou ]+/, lc $upper;
print "$matches matches, ", scalar(keys %pieces), " pieces, ", length(join '', values %pieces), " letters\n";

delete @place{grep { @{$place{$_}} < 3 } keys %place};
@records = grep { $_->{id} % 5 } @records;
print scalar(keys %place), " places, ", scalar(@records), " records\n";
