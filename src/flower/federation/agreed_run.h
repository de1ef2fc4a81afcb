/// \file  Remembers what a node agreed to in a run and what it was asked for, so that neither can change in silence. It
/// lies in the node's folder and survives a restart of the node.
///
///   <run>-agreed.json   the terms and the requests, sealed (base/plain/sealed.h)
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fed/exchange/message.h"
#include "flower/federation/agreed_terms.h"

namespace evenkeel::flower {

/// A request that the node has begun to answer.
struct AnsweredRequest {
  std::string what;    ///< "train", or task, budget, rank evaluation mode and program of a score
  int64_t round = 0;   ///< rounds done before it
  std::string digest;  ///< SHA-256 over header, payload and shared state
  /// True: the server has gone back to a round before it, so it may come again with other content.
  bool undone = false;

  void visit(auto& field) {  // base/format/record.h
    field("what", what);
    field("round", round);
    field("digest", digest);
    field("undone", undone);
  }
};

/// Returns the SHA-256 over header and payload of a task and the shared state that it meets. How an upload becomes part
/// of a sum is left out: a round may be masked again (secure/node_round.h has the rules).
std::string request_digest(const fed::Task& task, const methods::Common& shared);

/// The terms and the requests of one run. Threads: one.
class AgreedRun {
 public:
  /// Reads what is known of `run`. \param folder  made if absent; empty: nothing is stored
  /// \throws kCheckpoint when the file is damaged
  AgreedRun(std::filesystem::path folder, const std::string& run);

  /// Checks that client and keys of an offer are those that were agreed on, but for what may_change(). Before the first
  /// offer of a run nothing is. \param anew  true: the owner has agreed to this offer (--agreed), so it may differ
  /// \throws kConfig naming what has changed
  void require_same(const AgreedTerms& terms, bool anew) const;
  /// Agrees to the terms of `offer` and stores them. Requests after Offer::round are undone. The files of rows stay
  /// those of the first acceptance, once the server knows of it. \throws kConfig as require_same(), and for another
  /// budget or number of examples after the first request
  void agree(AgreedTerms terms, const Offer& offer, bool anew);
  /// Returns the digest of the files of rows with which the node joined.
  const std::string& files() const { return terms_.files; }

  /// Admits a request on a shared state. The same request may come any number of times. A round is trained, and a state
  /// scored at a point, with one content only, unless the server has gone back to an earlier round.
  /// \throws kData when it is not admitted
  void admit(const fed::Task& task, const methods::Common& shared);

  /// Checks that the files of rows are those with which the node joined. \throws kData
  void require_files(const std::string& files) const;

 private:
  AnsweredRequest* find(const AnsweredRequest& asked);
  void admit_again(AnsweredRequest& known, const AnsweredRequest& asked);
  bool trained_after(int64_t round) const;
  void save() const;

  std::filesystem::path file_;
  AgreedTerms terms_;
  bool agreed_ = false;
  int64_t open_ = 0;  // rounds before this one are over: nothing new is asked about them
  int64_t repeats_ = 0;
  std::vector<AnsweredRequest> requests_;
};

}  // namespace evenkeel::flower
