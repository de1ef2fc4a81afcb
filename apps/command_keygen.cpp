// `evenkeel keygen`: creates the key that identifies a node.
#include <iostream>

#include "apps/commands.h"
#include "apps/output.h"
#include "apps/output_paths.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/key_fingerprint.h"
#include "base/plain/text.h"
#include "flower/format/keys.h"

namespace evenkeel::apps {
namespace {

struct KeygenFlags {
  std::string file, comment, replaces, format = "pkcs8";
};

/// Returns the text after the key in a line of the list: the node's name, and the key that this one replaces.
std::string comment_of(const KeygenFlags& flags) {
  const auto name = flags.comment.empty() ? fs::path(flags.file).stem().string() : flags.comment;
  flower::check_key_name(name);
  if (flags.replaces.empty()) return name;
  EK_CHECK(is_key_fingerprint(flags.replaces), kConfig, "--replaces is ", shown(flags.replaces),
           ", allowed: the fingerprint of a key, SHA256:..., as federation/members.json and ssh-keygen -l have it");
  return concat(name, ' ', flower::kReplaces, flags.replaces);
}

flower::KeyFormat format_of(const std::string& name) {
  EK_CHECK(name == "pkcs8" || name == "openssh", kConfig, "--format is \"", shown(name), "\", allowed: pkcs8, openssh");
  return name == "openssh" ? flower::KeyFormat::kOpenssh : flower::KeyFormat::kPkcs8;
}

/// Prints the line of the public key. If the command fails because the line is lost, the private key is removed.
void print_public_line(const std::string& line, const fs::path& private_key) try {
  std::cout << line << "\n" << std::flush;
} catch (const std::ios_base::failure&) {
  if (output_failed()) remove_path(private_key);
  throw;
}

void run_keygen(const KeygenFlags& flags) {
  const auto format = format_of(flags.format);
  check_output_text("FILE", flags.file);
  check_not_kept("FILE", flags.file);
  const auto comment = comment_of(flags);
  const auto key = flower::make_key(flags.file, format, comment).public_key();
  print_public_line(flower::openssh_line(key, comment), flags.file);
  std::cerr << "the private key is in " << flags.file << ", for `evenkeel node --key`"
            << (flags.format == "openssh" ? " and `flower-supernode --auth-supernode-private-key`" : "")
            << "; the line above is what a server's --allow file wants, and, in a file, `flwr supernode register`; "
            << "its fingerprint is " << key.fingerprint() << "\n";
}

}  // namespace

void add_keygen_command(CLI::App& program) {
  auto flags = std::make_shared<KeygenFlags>();
  auto* command = program.add_subcommand("keygen", "a key for a node of a federation");
  command->footer(
      "Example: evenkeel keygen hospital.pem --comment hospital >> keys.txt\n"
      "         evenkeel keygen hospital.key --format openssh > hospital.pub\n\n"
      "Writes a new private key (P-384, readable by its owner alone) and prints the public one as a line of OpenSSH's "
      "form. `evenkeel node` reads either format; Flower's `flower-supernode` reads openssh alone.");
  command->add_option("FILE", flags->file, "of the private key, which must not exist yet")->required();
  command->add_option("--comment", flags->comment, "name of the node in allow-lists (default: the file's name)");
  command->add_option("--replaces", flags->replaces,
                      "fingerprint of the key whose client the new key takes over: SHA256:...");
  command->add_option("--format", flags->format, "of the private key: pkcs8 or openssh (default: pkcs8)");
  command->callback([flags] { run_keygen(*flags); });
}

}  // namespace evenkeel::apps
