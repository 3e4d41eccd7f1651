#include "cli.hpp"

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/liveness.hpp"
#include "errors.hpp"
#include "format/logs.gen.hpp"
#include "format/text.hpp"
#include "shell/addresses.hpp"
#include "shell/descriptors.hpp"
#include "shell/last_words.hpp"
#include "shell/runner.hpp"
#include "shell/settings.hpp"

namespace partc {
namespace {

constexpr int kUsage = 2;

constexpr const char* kShort =
    "usage: partc-runner --bundle DIR [--listen HOST:PORT] [--peer NAME=HOST:PORT]\n"
    "                    [--advertise HOST[:PORT]] [--insecure] [--patience SECONDS]\n"
    "                    [--rejoin SECONDS] [--linger SECONDS] [--frugal] [--stdio]\n"
    "                    [--log-level LEVEL] [--log-format FORMAT] [--version] [-h]\n";

constexpr const char* kHelp = R"(
Run one device's part of a compiled model, as one of a ring.

options:
  -h, --help            show this help message and exit
  --bundle DIR          the folder of the device: build/devices/NAME
  --listen HOST:PORT    where peers reach this device
  --peer NAME=HOST:PORT
                        where a device is
  --advertise HOST[:PORT]
                        where peers reach this device, if not where it listens
                        (default: its address on the way to each)
  --insecure            no encryption and no keys; loopback addresses only
  --patience SECONDS    a peer without progress for this long, or 4 x the
                        predicted step, counts as gone (default: 5)
  --rejoin SECONDS      at the source: how long requests wait for a device that
                        is lost, 0: not at all (default: 60)
  --linger SECONDS      at the source: how long a request goes on whose client
                        is gone, 0: not at all (default: 30)
  --frugal              sleep until a message comes instead of spinning first:
                        saves power, a hop takes 0.1-0.2 ms longer
  --stdio               for programs: JSON lines in (peers) and out (progress);
                        ends with standard input
  --log-level LEVEL     tell on standard error what happens: debug, info,
                        warning, error and above, or none (default: info; none
                        with --stdio)
  --log-format FORMAT   lines of the log: text or json (default: text)
  --version             show program's version number and exit

examples:
  partc-runner --bundle build/devices/phone
      addresses as in devices.yaml
  partc-runner --bundle phone --listen 0.0.0.0:5555 --peer board=192.0.2.7:5555
  partc-runner --bundle phone --listen 0.0.0.0:5555 --advertise 198.51.100.4:15555
      the others reach this device through a router

exit codes:
  0 stopped when asked to, 1 wrong bundle, keys or address, 2 usage,
  70 a bug of partc
)";

/** A command line that is not understood. */
struct Usage {
  std::string complaint;
};

std::string address(const std::string& text) {
  if (!shell::has_port(text)) throw Usage{in_quotes(text) + " is not HOST:PORT"};
  return text;
}

std::string host(const std::string& text) {
  if (!shell::has_port(text) && !shell::has_port(text + ":0"))
    throw Usage{in_quotes(text) + " is not HOST or HOST:PORT"};
  return text;
}

std::pair<std::string, std::string> peer(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) throw Usage{in_quotes(text) + " is not NAME=HOST:PORT"};
  return {text.substr(0, equals), address(text.substr(equals + 1))};
}

/** Plain decimal numbers alone: what else `strtod` takes (spaces, `0x1p3`, `nan`), Python's `float` takes otherwise. */
double seconds_or_none(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is_number = !text.empty() && *end == '\0' && text.find_first_not_of("0123456789.eE+-") == text.npos;
  if (!is_number || value < 0.0) throw Usage{in_quotes(text) + " is not a number of seconds"};
  if (value > core::MOST_S) throw Usage{in_quotes(text) + " is too long: 1000000 seconds at most"};
  return value;
}

double seconds(const std::string& text) {
  const double value = seconds_or_none(text);
  if (value == 0.0) throw Usage{in_quotes(text) + " is not a number of seconds above 0"};
  return value;
}

/** The index of a word in a list of words. */
template <class Words>
std::size_t choice(const Words& words, const std::string& text) {
  const auto* found = std::ranges::find(words, text);
  if (found == words.end()) throw Usage{"invalid choice: '" + text + "' (choose from " + joined(words, ", ") + ")"};
  return static_cast<std::size_t>(found - words.begin());
}

/** The options in the words of a command; none where they ask for a text, which has been printed then. */
std::optional<shell::Settings> parsed(int count, char** words) {
  shell::Settings settings;
  std::optional<std::size_t> level;
  const std::map<std::string, std::function<void(const std::string&)>> valued{
      {"--bundle", [&](const std::string& text) { settings.bundle = text; }},
      {"--listen", [&](const std::string& text) { settings.listen = address(text); }},
      {"--peer",
       [&](const std::string& text) { settings.peers.insert_or_assign(peer(text).first, peer(text).second); }},
      {"--advertise", [&](const std::string& text) { settings.advertise = host(text); }},
      {"--patience", [&](const std::string& text) { settings.patience_s = seconds(text); }},
      {"--log-level", [&](const std::string& text) { level = choice(LOG_LEVELS, text); }},
      {"--log-format", [&](const std::string& text) { settings.log.is_json = choice(LOG_FORMATS, text) == 1; }},
      {"--rejoin", [&](const std::string& text) { settings.rejoin_s = seconds_or_none(text); }},
      {"--linger", [&](const std::string& text) { settings.linger_s = seconds_or_none(text); }},
  };
  const std::map<std::string, bool*> flags{
      {"--insecure", &settings.insecure}, {"--frugal", &settings.frugal}, {"--stdio", &settings.stdio}};
  for (int at = 1; at < count; ++at) {
    const std::string word = words[at];
    if (word == "-h" || word == "--help") return std::printf("%s%s", kShort, kHelp), std::nullopt;
    if (word == "--version") return std::puts("partc-runner " PARTC_VERSION " (native)"), std::nullopt;
    if (word == "--measure")
      throw Usage{"measuring is the work of the runner in Python: python -m partc.runtime --measure"};
    if (const auto flag = flags.find(word); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    const std::size_t equals = word.find('=');
    const auto option = valued.find(word.substr(0, equals));
    if (option == valued.end()) throw Usage{"unrecognized arguments: " + word};
    if (equals == std::string::npos && ++at == count) throw Usage{"argument " + word + ": expected one argument"};
    try {
      option->second(equals == std::string::npos ? words[at] : word.substr(equals + 1));
    } catch (const Usage& usage) {
      throw Usage{"argument " + option->first + ": " + usage.complaint};
    }
  }
  settings.log.level = level.value_or(settings.stdio ? LOG_LEVELS.size() - 1 : settings.log.level);
  if (settings.bundle.empty()) throw Usage{"the following arguments are required: --bundle"};
  return settings;
}

/** The last line of a log of JSON; in one of text the lines for people say it. */
void log_failure(const Error& error, const shell::Settings& settings) {
  // The name of the folder stands for the device, which may not be known.
  const std::string device = std::filesystem::weakly_canonical(settings.bundle).filename();
  shell::write_log(
      settings.log, device, "failed",
      {{"cause", {error.cause}}, {"reason", {error.message}}, {"exit_code", {Integer{error.exit_code()}}}});
}

/** Say what is wrong, for people and, as the last line of standard output, for the program that started us. */
int fail(const Error& error, const shell::Settings& settings) {
  if (settings.log.is_json) log_failure(error, settings);
  std::fprintf(stderr, "error: %s\n", printable(error.what()).c_str());
  if (error.exit_code() == 70)
    std::fputs("error: this is a bug of partc; please report it with the lines above\n", stderr);
  if (settings.stdio) shell::say_last_words(error);
  return error.exit_code();
}

int serve(const shell::Settings& settings) {
  signal(SIGPIPE, SIG_IGN);
  // Linux kills this process when the thread that started it ends, even while it is stopped or computes.
  if (settings.stdio) prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    shell::raise_limit();  // before anything else is opened
    shell::Runner(settings).serve();
    return 0;
  } catch (const Error& error) {
    return fail(error, settings);
  } catch (const std::exception& error) {
    return fail(internal_error(error.what()), settings);
  }
}

}  // namespace

int run(int count, char** words) {
  try {
    const std::optional<shell::Settings> settings = parsed(count, words);
    return settings ? serve(*settings) : 0;
  } catch (const Usage& usage) {
    std::fprintf(stderr, "%spartc-runner: error: %s\n", kShort, printable(usage.complaint).c_str());
    return kUsage;
  }
}

}  // namespace partc
