// Fuzzes requests of nodes to a coordinator. The first byte selects the call, the rest is its body.
#include "flower/format/calls.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace evenkeel;
using namespace evenkeel::flower;

std::string sent_again(const flower::PushObjectRequest& call) {
  return flower::encode(static_cast<const flower::ObjectRequest&>(call)) +
         flower::object_field(flower::kPushedField, call.content.size()) + std::string(call.content);
}
std::string sent_again(const auto& call) { return flower::encode(call); }

template <typename Call>
void check(std::string_view body) {
  const std::string once = sent_again(flower::decode<Call>(body)), twice = sent_again(flower::decode<Call>(once));
  if (once != twice) fuzz::finding("a call that does not arrive as it was sent", {});
}

}  // namespace

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  if (input.empty()) return;
  const auto body = input.substr(1);
  switch (input[0]) {
    case 'r':
      return check<flower::RegisterRequest>(body);
    case 'a':
      return check<flower::ActivateRequest>(body);
    case 'd':
      return check<flower::NodeId>(body);
    case 'h':
      return check<flower::HeartbeatRequest>(body);
    case 'm':
      return check<flower::PullMessagesRequest>(body);
    case 'p':
      return check<flower::PushMessagesRequest>(body);
    case 'o':
      return check<flower::ObjectRequest>(body);
    case 'O':
      return check<flower::PushObjectRequest>(body);
    case 'c':
      return check<flower::ConfirmRequest>(body);
    case 'g':
      return check<flower::GetRunRequest>(body);
    case 'f':
      return check<flower::GetFabRequest>(body);
    default:
      return;
  }
}
