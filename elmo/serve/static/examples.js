// Sentences for the first look. They were written for this page; each word is used in two ways.

export const EXAMPLES = {
  bank: [
    "The bank raised its interest rates again last week.",
    "She borrowed the money from a bank in the city.",
    "He paid the cheque into his account at the bank.",
    "They sat on the bank of the river and watched the boats.",
    "The boat drifted towards the far bank of the stream.",
    "Reeds grew along the muddy bank below the bridge.",
  ],
  play: [
    "He wrote a play in five acts about the war.",
    "The first play of the season was performed in London.",
    "The actors in the play were praised by the critics.",
    "The children went out to play in the garden.",
    "They will play the second match of the tour on Sunday.",
    "We used to play cards every evening after dinner.",
  ],
  bat: [
    "The bat sleeps in a cave and hunts at night.",
    "A bat flew out of the old church tower.",
    "The bat feeds on insects and fruit.",
    "He hit the ball with his bat.",
    "The boy carried a bat and a ball to the park.",
    "She swung the bat and missed the ball.",
  ],
  court: [
    "The court held that the contract was not valid.",
    "She will appeal to a higher court against the sentence.",
    "The lower court dismissed the case for want of evidence.",
    "The painter was received at the court of the king.",
    "He spent his youth as a page at the court of France.",
    "Poets and musicians lived at the court of the emperor.",
  ],
  match: [
    "They won the first match of the season by two goals.",
    "The final match was played in front of a large crowd.",
    "He scored twice in the match against France.",
    "She struck a match and lit the candle.",
    "He threw the burning match into the fire.",
    "With his last match he lit the lamp and his pipe.",
  ],
  light: [
    "The light of the moon lay upon the water.",
    "A faint light shone through the window.",
    "She turned off the light and closed the door.",
    "She packed a light bag for the journey.",
    "They had only a light meal before the journey.",
    "A light coat is enough at this time of the year.",
  ],
};
