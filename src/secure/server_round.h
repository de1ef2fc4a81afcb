/// \file  The server's half of one attempt at a masked round, without sockets and files. It collects what members send
/// and ends with the sum of the uploads that arrived, or with an error that says why there is none. Messages may be
/// taken in any order of members; a server that was killed takes the messages of its journal again.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "secure/round_context.h"
#include "secure/round_messages.h"
#include "secure/shamir.h"

namespace evenkeel::secure {

/// One attempt. \throws kData from all functions, unless stated otherwise, naming the client whose message is wrong;
/// the state is then as before
class ServerRound {
 public:
  explicit ServerRound(RoundContext context);
  const RoundContext& context() const { return context_; }

  // --- phases 1 and 2: every member of the roster is needed; without one, another attempt has a smaller roster ---
  void take_keys(const KeysOfMember& keys, const Verify& verify);
  bool has_all_keys() const { return keys_.size() == context_.roster.size(); }
  std::vector<KeysOfMember> all_keys() const;
  void take_shares(const SharesOfMember& shares);
  bool has_all_shares() const { return shares_.size() == context_.roster.size(); }

  // --- phase 3 ---
  Inbox inbox_of(Place place) const;
  /// Adds a masked upload to the sum. \return false if it came after close() or twice; then it is thrown away unread
  bool take_upload(Place place, const RingVector& masked);

  // --- phase 4 ---
  /// Ends phase 3 and returns the survivors. Uploads that arrive later are thrown away. \throws kData when fewer
  /// arrived than the threshold; as check_weight_shares()
  const Survivors& close();
  void take_signature(Place place, const std::string& signature, const Verify& verify);
  bool has_enough_signatures() const { return std::ssize(signatures_) >= context_.threshold; }

  // --- phase 5 ---
  UnmaskRequest unmask_request() const { return {.survivors = survivors_.value(), .signatures = signatures_}; }
  void take_unmask(Place place, UnmaskReply reply);
  bool has_enough_shares() const { return std::ssize(replies_) >= context_.threshold; }
  /// Takes the masks off. \return the sum of the survivors' summands
  ///
  /// Each secret is joined from the first `threshold` shares. If these do not give it, because a member sent a wrong
  /// share, up to 10,000 random subsets of that size are tried, the same in every call. Of n shares with w wrong ones
  /// and threshold t, a subset is without a wrong one with probability C(n - w, t) / C(n, t). So among the shares of
  /// 100 members with threshold 51, up to 9 wrong ones are passed over with a probability above 0.999. The first half
  /// of the subsets has members whose share of another secret was wrong only where the others are too few.
  /// \throws kData naming the client whose secret cannot be joined, or when fewer members than the threshold replied
  RingVector sum() const;

  /// Returns the places of members whose shares were wrong; empty before sum().
  const std::set<Place>& wrong() const { return wrong_; }

 private:
  int64_t client(Place place) const { return context_.roster.at(static_cast<size_t>(place)).client; }
  void check_place(Place place) const;
  using Fits = std::function<bool(std::span<const Share> subset)>;
  std::optional<std::vector<Share>> find_subset(std::vector<Share> shares, const Fits& fits) const;
  Secret joined_secret(Place of, bool is_seed) const;

  RoundContext context_;
  Bytes32 digest_;
  std::map<Place, KeysOfMember> keys_{};
  std::map<Place, SharesOfMember> shares_{};
  std::set<Place> arrived_{};
  RingVector total_{};
  std::optional<Survivors> survivors_{};
  std::map<Place, std::string> signatures_{};
  std::map<Place, UnmaskReply> replies_{};
  mutable std::set<Place> wrong_{};
};

}  // namespace evenkeel::secure
