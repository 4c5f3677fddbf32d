"""`tandem metrics run`: rounds, server and probes, wired together.

Any number of these run side by side. Each is complete by itself, so that figures outlive the operator and any of
them.
"""

import asyncio
import logging

from tandem import counters
from tandem.cluster.client import Api
from tandem.cluster.identity import identity
from tandem.errors import Refused, Transient
from tandem.http.listener import Listener
from tandem.http.probes import serve
from tandem.metrics_server.authentication import Authenticator
from tandem.metrics_server.authorization import Authorizer
from tandem.metrics_server.certificates import CertificateError
from tandem.metrics_server.gate import Gate
from tandem.metrics_server.rounds import Rounds
from tandem.metrics_server.server import application
from tandem.metrics_server.trust import Trust, TrustKeeper
from tandem.metrics_server.ui.page import UiPage
from tandem.settings import Settings

log = logging.getLogger(__name__)

LOOK_SECONDS, RETRY_SECONDS = 30.0, 2.0
STUCK_ROUNDS = 10


class MetricsServer:
    """One process."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._settings = settings.metrics_server
        self._rounds = Rounds(api, settings)
        self._authenticator = Authenticator(api)
        gate = Gate(self._authenticator, Authorizer(api))
        self._application = application(self._rounds.board, gate, self._page(gate))
        self._keeper = TrustKeeper(api, self._settings, identity()[0])
        self._trust: Trust | None = None
        self._problem = "the certificate is being looked for"

    def _page(self, gate: Gate) -> UiPage | None:
        wanted = self._settings.page
        if not wanted.enabled:
            return None
        known, board = self._rounds.known, self._rounds.board
        if not wanted.playground:
            return UiPage(gate, known, board)
        from tandem.metrics_server.ui.playground import Playground  # brings gRPC along

        return UiPage(gate, known, board, Playground(gate, known))

    async def run(self, http: tuple[str, int], https: tuple[str, int]) -> None:
        """Run until cancelled: probes and own metrics at `http`, everything else at `https`."""
        probes = await serve(self, *http)
        listener = Listener(self._application, *https)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._rounds.run())
                group.create_task(self._keep_trust(listener))
        finally:
            await listener.close()
            await probes.close()

    async def _keep_trust(self, listener: Listener) -> None:
        while True:
            try:
                await self._take(await self._keeper.look(), listener)
                self._problem = ""
                await asyncio.sleep(LOOK_SECONDS)
            except (Transient, Refused, CertificateError) as error:
                if str(error) != self._problem:
                    log.warning("checking certificate and registration again soon: %s", error)
                self._problem = str(error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _take(self, trust: Trust, listener: Listener) -> None:
        before = self._trust
        if before is None or before.listens_as != trust.listens_as:
            await listener.listen(trust.context())
        # Only now: a certificate that TLS does not take is a problem until another is there.
        self._trust = trust
        self._authenticator.request_header = trust.request_header
        counters.CERTIFICATE_EXPIRY.set(trust.certificate.expires_at.timestamp())
        if before is None or trust.registration != before.registration:
            log.log(logging.WARNING if trust.registration else logging.INFO, "%s", self.ready())

    def not_ready(self) -> str:
        """Why there are no figures now; empty when there are."""
        return self._problem if self._trust is None else self._rounds.not_ready()

    def broken(self) -> str:
        """Why a restart would help; empty when it would not."""
        age = self._rounds.board.age
        limit = 60 + STUCK_ROUNDS * self._settings.interval_seconds
        return f"the last round was {age:.0f} s ago" if age is not None and age > limit else ""

    def ready(self) -> str:
        """Whether autoscalers ask here."""
        registration = self._trust.registration if self._trust else ""
        return f"ok; but {registration}" if registration else "ok: autoscalers ask here"
