// Immutable terms with counted references, as the Lean prover: repeated symbolic derivatives, simplified while they are
// built, subterms shared, each term freed as a tree. Proved by values modulo a prime: the derivative's value is that of
// the derivative computed in dual numbers.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr unsigned kTerms = 1200, kDepth = 8, kDerivatives = 3;
constexpr std::uint64_t kPrime = 1'000'000'007;

enum class Kind : std::uint8_t { kConstant, kVariable, kSum, kProduct, kPower };

// Constants carry their digits, so that terms have many sizes.
struct Term {
  std::uint32_t references;
  Kind kind;
  std::uint32_t value;
  Term* parts[2];
  char text[];
};

Term* make(Kind kind, std::uint32_t value, Term* left, Term* right, std::size_t text_bytes) {
  auto* term = static_cast<Term*>(std::malloc(sizeof(Term) + text_bytes));
  require(term != nullptr, "malloc returned null");
  *term = {.references = 1, .kind = kind, .value = value, .parts = {left, right}};
  std::memset(term->text, static_cast<int>(value), text_bytes);
  return term;
}

Term* keep(Term* term) {
  ++term->references;
  return term;
}

void drop(Term* term) {
  if (term == nullptr || --term->references > 0) return;
  drop(term->parts[0]);
  drop(term->parts[1]);
  std::free(term);
}

Term* constant(std::uint32_t value) { return make(Kind::kConstant, value, nullptr, nullptr, value % 40); }
bool is(const Term* term, std::uint32_t value) { return term->kind == Kind::kConstant && term->value == value; }

// These take over the references they are given.
Term* sum(Term* left, Term* right) {
  if (is(left, 0)) return drop(left), right;
  if (is(right, 0)) return drop(right), left;
  return make(Kind::kSum, 0, left, right, 0);
}
Term* product(Term* left, Term* right) {
  if (is(left, 0) || is(right, 1)) return drop(right), left;
  if (is(right, 0) || is(left, 1)) return drop(left), right;
  return make(Kind::kProduct, 0, left, right, 0);
}
Term* power(Term* base, std::uint32_t exponent) {
  if (exponent == 1) return base;
  return make(Kind::kPower, exponent, base, nullptr, 8);
}

Term* random_term(Random& random, unsigned depth) {
  if (depth == 0)
    return random.chance(50) ? make(Kind::kVariable, 0, nullptr, nullptr, 1) : constant(2 + random.below(90));
  Term* left = random_term(random, depth - 1);
  if (random.chance(15)) return power(left, static_cast<std::uint32_t>(random.between(2, 5)));
  Term* right = random_term(random, depth - 1);
  return random.chance(60) ? sum(left, right) : product(left, right);
}

Term* derivative(Term* term) {
  switch (term->kind) {
    case Kind::kConstant:
      return constant(0);
    case Kind::kVariable:
      return constant(1);
    case Kind::kSum:
      return sum(derivative(term->parts[0]), derivative(term->parts[1]));
    case Kind::kProduct:
      return sum(product(keep(term->parts[0]), derivative(term->parts[1])),
                 product(derivative(term->parts[0]), keep(term->parts[1])));
    case Kind::kPower:
      return product(product(constant(term->value), power(keep(term->parts[0]), term->value - 1)),
                     derivative(term->parts[0]));
  }
  return nullptr;
}

struct Dual {
  std::uint64_t value, slope;
};

Dual operator*(Dual a, Dual b) {
  return {a.value * b.value % kPrime, (a.value * b.slope + a.slope * b.value) % kPrime};
}

Dual evaluate(const Term* term, std::uint64_t at) {
  if (term->kind == Kind::kConstant) return {term->value, 0};
  if (term->kind == Kind::kVariable) return {at, 1};
  const Dual left = evaluate(term->parts[0], at);
  if (term->kind == Kind::kPower) {
    Dual result = left;
    for (std::uint32_t times = 1; times < term->value; ++times) result = result * left;
    return result;
  }
  const Dual right = evaluate(term->parts[1], at);
  if (term->kind == Kind::kProduct) return left * right;
  return {(left.value + right.value) % kPrime, (left.slope + right.slope) % kPrime};
}

void run(const Setting& setting) {
  Random random(setting.seed);
  for (unsigned done = 0; done < kTerms; ++done) {
    Term* term = random_term(random, kDepth);
    const std::uint64_t at = random.below(kPrime);
    for (unsigned times = 0; times < kDerivatives; ++times) {
      Term* next = derivative(term);
      require(evaluate(next, at).value == evaluate(term, at).slope, "a derivative is wrong");
      drop(term);
      term = next;
    }
    drop(term);
  }
}

const Workload lean("lean", run);

}  // namespace
}  // namespace host_bench
