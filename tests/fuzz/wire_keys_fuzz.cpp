// Fuzzes what identifies a node: an allow-list, a public key, or three lines of signed headers.
#include "base/plain/base64.h"
#include "flower/format/keys.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  using namespace evenkeel::flower;
  if (input.empty()) return;
  const auto text = input.substr(1);
  if (input[0] == 'l') {
    for (const auto& one : flower::parse_allow_list(text, "keys.txt"))
      if (flower::PublicKey::from_pem(one.key.pem(), "the same") != one.key) fuzz::finding("a key that changes", {});
  } else if (input[0] == 'p') {
    const auto key = flower::PublicKey::from_pem(text, "a key");
    if (flower::PublicKey::from_openssh(key.openssh_blob(), "the same") != key) fuzz::finding("a key that changes", {});
  } else if (input[0] == 't') {
    if (const auto time = flower::parse_timestamp(text); time && *time > 0 && *time < 1e10)
      if (std::abs(flower::parse_timestamp(flower::format_timestamp(*time)).value_or(0) - *time) > 1e-5)
        fuzz::finding("a time that changes", {});
    if (const auto bytes = from_base64(text); bytes && to_base64(*bytes).size() != text.size())
      fuzz::finding("base64 that changes", {});
  } else {
    flower::SignedHeaders headers;
    const size_t first = text.find('\n'), second = text.find('\n', std::min(first, text.size() - 1) + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) return;
    headers = {std::string(text.substr(0, first)), std::string(text.substr(first + 1, second - first - 1)),
               std::string(text.substr(second + 1))};
    static flower::Verifier verifier;
    verifier.check(
        headers, [](const flower::PublicKey&) { return true; }, 1'700'000'000);
  }
}
